package client

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"sync"
	"time"
)

const (
	// sampleLimit is how long a sample waits before it asks again for its turn.
	sampleLimit = 60 * time.Second
	// reachPause is how often who plays a rollout is asked for a word while it samples.
	reachPause = 60 * time.Second
)

// ErrUnwanted says that the loop has given a rollout up: its end is not reported.
var ErrUnwanted = errors.New("unwanted: the rollout is not wanted any more")

// Failure is an end of a rollout that comes to nothing. Its class is infra, data, verifier_crash, verifier_timeout or
// verifier_protocol. A rollout of the class data is not tried again.
type Failure struct {
	Class   string
	Message string
}

// Error says the class and the message.
func (f *Failure) Error() string { return f.Class + ": " + f.Message }

// Task is a rollout to play.
type Task struct {
	// ID is the claim's name, such as g12-s3-a1.
	ID          string
	Environment string
	Prompt      uint64
	Level       int64
	Seed        uint64
	Group       int64
	Sample      int64
	Attempt     int64
	// Evaluation: nothing is trained on it.
	Evaluation bool

	worker    *Worker
	transport *Transport // to where it plays
	key       string
	secret    string
	unwanted  *event
	mu        sync.Mutex
	// answered are turns that have their response, asked are calls that wait for theirs.
	answered, asked int
}

// Wanted is false once the loop has given the rollout up.
func (t *Task) Wanted() bool { return !t.unwanted.isSet() }

// Result is how a rollout ended. The texts are for sample files.
type Result struct {
	Reward                     float64
	Exact                      bool
	Prompt, Response, Expected string
}

// Play plays one rollout.
type Play func(ctx context.Context, task *Task) (Result, error)

// ending is what a finish says of a result.
func ending(result Result) (map[string]any, error) {
	if !(math.Abs(result.Reward) <= math.MaxFloat32) {
		return nil, refuse(Invalid, "play returned the reward %v: want a finite number that a float32 can be", result.Reward)
	}
	said := map[string]any{"reward": result.Reward, "exact": result.Exact}
	for key, text := range map[string]string{
		"prompt_text": result.Prompt, "response_text": result.Response, "answer_text": result.Expected,
	} {
		if text != "" {
			said[key] = text
		}
	}
	return said, nil
}

// Sampled is a response of the policy, one entry a token in every list.
type Sampled struct {
	Tokens   []int32   `json:"tokens"`
	Logprobs []float32 `json:"logprobs"`
	Versions []int64   `json:"versions"`
	// Finish is stop, length or pruned.
	Finish string `json:"finish"`
}

// Tokens samples a response to a prompt of token ids. The prompt of a later turn begins with the prompt and response of
// the turn before.
func (t *Task) Tokens(ctx context.Context, prompt []int32, most int) (Sampled, error) {
	var found Sampled
	if !t.Wanted() {
		return found, ErrUnwanted
	}
	if most < 1 || len(prompt) < 1 {
		return found, refuse(Invalid, "sample of %d tokens after %d: want at least one of each", most, len(prompt))
	}
	t.mu.Lock()
	turn := t.answered + t.asked
	t.asked++
	t.mu.Unlock()
	message := map[string]any{
		"worker": t.worker.name, "secret": t.secret, "turn": turn, "prompt": prompt, "max_tokens": most,
	}
	c := call{path: "/api/v1/rollouts/" + t.ID + "/sample", message: message, limit: sampleLimit, joins: true}
	err := t.ask(ctx, c, &found)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.asked--; err == nil {
		t.answered++
	}
	return found, err
}

// ask makes a call that samples, however long that takes, as long as who plays the rollout is there.
func (t *Task) ask(ctx context.Context, c call, into any) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	moved := make(chan struct{})
	go t.reach(ctx, cancel, moved)
	found, err := t.answer(ctx, c, moved)
	for errors.Is(err, errSilent) || errors.Is(err, errElsewhere) {
		found, err = t.answer(ctx, c, moved)
	}
	if err == nil {
		_, err = found.object(into)
	}
	return err
}

// errElsewhere says that another address answers for the rollout. The process that the call waits for may stand still for ever.
var errElsewhere = errors.New("another process goes on with the rollout")

// reach asks now and then for a word. It cancels where nobody has answered for the transport's patience. It says on moved that
// another address has answered twice.
func (t *Task) reach(ctx context.Context, cancel context.CancelCauseFunc, moved chan<- struct{}) {
	last, base, away := time.Now(), t.transport.URL(), 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(reachPause):
		}
		asked := time.Now()
		switch err := t.worker.keep(ctx, t); {
		case err == nil:
			last = asked
			here := t.transport.URL()
			if away++; here == base {
				away = 0
			}
			if away < 2 {
				break
			}
			base, away = here, 0
			select {
			case moved <- struct{}{}:
			case <-ctx.Done():
			}
		case asked.Sub(last) > t.transport.patience:
			cancel(err)
			return
		}
	}
}

// answer makes a call that samples. It ends when the rollout is not wanted any more: its plane may then be gone without a
// word. It ends with errElsewhere by what comes on moved, which may be nil.
func (t *Task) answer(ctx context.Context, c call, moved <-chan struct{}) (*answer, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-t.unwanted.done:
			cancel(ErrUnwanted)
		case <-moved:
			cancel(errElsewhere)
		case <-ctx.Done():
		}
	}()
	c.method = http.MethodPost
	return t.transport.do(ctx, c)
}

// Message is a message of a chat.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// Chat asks the policy for the next message. The claim's key is known to the control plane alone that gave it: another
// one answers 410 once it is the writer. 0 tokens: as many as the run allows.
func (t *Task) Chat(ctx context.Context, messages []Message, most int) (string, error) {
	if !t.Wanted() {
		return "", ErrUnwanted
	}
	body := map[string]any{"model": "policy", "messages": messages}
	if most > 0 {
		body["max_tokens"] = most
	}
	var reply struct {
		Choices []struct {
			Message *struct {
				Content string `json:"content"`
			} `json:"message"`
		} `json:"choices"`
	}
	key := map[string]string{"Authorization": "Bearer " + t.key}
	if err := t.ask(ctx, call{path: "/v1/chat/completions", message: body, headers: key, limit: noLimit}, &reply); err != nil {
		return "", err
	}
	if len(reply.Choices) == 0 || reply.Choices[0].Message == nil {
		return "", refuse(Internal, "the answer to a chat of %s is no chat completion", t.ID)
	}
	return reply.Choices[0].Message.Content, nil
}

// Question is a question to the policy, and the function that judges the answer.
type Question struct {
	// Text is the user's message. Where Tokens has ids, the policy goes on from these instead.
	Text   string
	Tokens []int32
	// Verify is handed the answer's text, or its tokens where the question has tokens.
	Verify func(text string, tokens []int32) (Result, error)
	// Expected is a readable answer.
	Expected string
}

// SingleTurn makes an environment of one question and its answer, of at most so many tokens; 0 leaves that to the run.
func SingleTurn(ask func(*Task) Question, most int) Play {
	return func(ctx context.Context, task *Task) (Result, error) {
		question := ask(task)
		var said Sampled
		var text string
		var err error
		switch {
		case len(question.Tokens) == 0:
			text, err = task.Chat(ctx, []Message{{"user", question.Text}}, most)
		case most < 1:
			err = refuse(Invalid, "a prompt of token ids wants a number of tokens")
		default:
			said, err = task.Tokens(ctx, question.Tokens, most)
		}
		if err != nil {
			return Result{}, err
		}
		result, err := judged(question, text, said.Tokens)
		if err != nil {
			return Result{}, err
		}
		if result.Prompt == "" && len(question.Tokens) == 0 {
			result.Prompt = question.Text
		}
		if result.Response == "" {
			result.Response = text
		}
		if result.Expected == "" {
			result.Expected = question.Expected
		}
		return result, nil
	}
}

// judged asks for the verdict. A failure of the verifier has a class.
func judged(question Question, text string, tokens []int32) (Result, error) {
	result, err := question.Verify(text, tokens)
	var failed *Failure
	switch {
	case errors.As(err, &failed):
		return result, failed
	case err != nil:
		return result, &Failure{"verifier_crash", err.Error()}
	case !(math.Abs(result.Reward) <= math.MaxFloat32):
		return result, &Failure{"verifier_protocol", fmt.Sprintf("the reward is %v", result.Reward)}
	}
	return result, nil
}

// late reports that something took too long.
func late(err error) bool {
	var failed *Failure
	if errors.As(err, &failed) {
		return failed.Class == "verifier_timeout"
	}
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)
}
