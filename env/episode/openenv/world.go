package openenv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/headway-rl/headway/env/episode"
	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/taskset"
	"github.com/headway-rl/headway/internal/pause"
)

// World is one episode on a server. It is used as an episode.World is: Close at any time, the rest by
// one goroutine.
type World struct {
	server  *Server
	episode string
	seed    int64

	schema *schema
	tools  json.RawMessage
	// carry is the reward that came with the reset, which the first step's is added to.
	carry float64

	mu     sync.Mutex
	wire   *wire
	closed bool
}

var _ episode.World = (*World)(nil)

// World returns the world of a rollout. The arguments are the name that the server is told for its
// episode, at most 255 characters, and the seed of its reset. Rollouts of one group that are to meet
// the same environment share a seed. Nothing is connected before Begin.
func (s *Server) World(rollout string, seed int64) *World {
	return &World{server: s, episode: rollout, seed: seed & math.MaxInt64}
}

// Tools are known after Begin.
func (w *World) Tools() json.RawMessage { return w.tools }

// Begin connects and resets, again and again while the server is full, and returns what is observed
// as a message of the user. A task's field "seed" goes before the rollout's, and "reset" has further
// parameters. A null is neither.
func (w *World) Begin(ctx context.Context, task *taskset.Task) ([]json.RawMessage, error) {
	reset, err := w.reset(task)
	if err != nil {
		return nil, err
	}
	starting, cancel := context.WithTimeout(ctx, w.server.o.StartTimeout)
	defer cancel()
	if w.schema, err = w.server.actions(starting); err != nil {
		return nil, after(ctx, sandbox.StartTimeout, "reset", err)
	}
	observed, err := w.start(starting, reset)
	if err != nil {
		return nil, after(ctx, sandbox.StartTimeout, "reset", err)
	}
	if observed.Done {
		return nil, sandbox.Fail(sandbox.Protocol, "reset", "", "the environment was done as soon as it was reset")
	}
	if w.carry, _, err = observed.reward(); err != nil {
		return nil, err
	}
	if w.tools = w.schema.tools; w.schema.mode == Tools {
		if w.tools, err = w.list(starting); err != nil {
			return nil, after(ctx, sandbox.StartTimeout, "reset", err)
		}
	}
	shown, err := w.server.show(observed)
	if err != nil || shown == "" {
		return nil, err
	}
	return []json.RawMessage{userMessage(shown)}, nil
}

// reset is the data of the reset.
func (w *World) reset(task *taskset.Task) (map[string]json.RawMessage, error) {
	data := maps.Clone(w.server.o.Reset)
	if data == nil {
		data = map[string]json.RawMessage{}
	}
	data["seed"], data["episode_id"] = mustMarshal(w.seed), mustMarshal(w.episode)
	if task == nil {
		return data, nil
	}
	if seed := task.Fields["seed"]; isGiven(seed) {
		data["seed"] = seed
	}
	if more := task.Fields["reset"]; isGiven(more) {
		if err := json.Unmarshal(more, &data); err != nil {
			return nil, sandbox.Fail(sandbox.BadTask, "reset", "", "task %s: its field reset is %.100s, expected an object of the reset's parameters", task.ID, more)
		}
	}
	if !isGiven(data["seed"]) { // a null would have every rollout of the group meet another environment
		data["seed"] = mustMarshal(w.seed)
	}
	return data, nil
}

// isGiven reports whether a value is there. Rows of tables have null for what they leave out.
func isGiven(value json.RawMessage) bool { return len(value) > 0 && string(value) != "null" }

// start connects and resets until there is room.
func (w *World) start(ctx context.Context, reset map[string]json.RawMessage) (observation, error) {
	for wait := w.server.o.Backoff; ; wait = min(2*wait, 5*time.Second) {
		observed, err := w.connect(ctx, reset)
		if sandbox.ClassOf(err) != sandbox.Quota {
			return observed, err
		}
		// Half of it is random, so that those who wait do not come back together.
		if pause.For(ctx, wait/2+rand.N(wait/2+1)) != nil {
			return observation{}, err
		}
	}
}

func (w *World) connect(ctx context.Context, reset map[string]json.RawMessage) (observation, error) {
	wire, err := w.server.dial(ctx)
	if err != nil {
		return observation{}, err
	}
	if !w.hold(wire) {
		wire.hangUp()
		return observation{}, sandbox.Fail(sandbox.Lost, "reset", "", "the episode was closed")
	}
	answer, err := wire.ask(ctx, "reset", reset, w.server.o.Ping)
	if err != nil {
		return observation{}, failed("reset", err)
	}
	observed, mistake, err := w.observe("reset", answer)
	if mistake != "" {
		err = sandbox.Fail(sandbox.BadTask, "reset", "", "the environment takes no such reset: %s", mistake)
	}
	return observed, err
}

// hold makes a connection the world's own, in place of one that found no room.
func (w *World) hold(wire *wire) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	if w.wire != nil {
		w.wire.hangUp()
	}
	w.wire = wire
	return true
}

// observation is the data of an answer of type observation.
type observation struct {
	Observation map[string]json.RawMessage
	Reward      json.RawMessage
	Done        bool
}

// observe reads an answer. mistake is what the server finds wrong with what it was asked for.
func (w *World) observe(op string, a answer) (o observation, mistake string, err error) {
	switch a.Type {
	case "observation":
		if err := json.Unmarshal(a.Data, &o); err != nil || o.Observation == nil {
			return o, "", sandbox.Fail(sandbox.Protocol, op, "", "%.200q is no observation: %v", a.Data, err)
		}
		return o, "", nil
	case "error":
		var e errorData
		if err := json.Unmarshal(a.Data, &e); err != nil {
			return o, "", sandbox.Fail(sandbox.Protocol, op, "", "%.200q is no error of OpenEnv: %w", a.Data, err)
		}
		mistake, err = e.class(op)
		return o, mistake, err
	}
	return o, "", sandbox.Fail(sandbox.Protocol, op, "", "an answer of type %q, expected an observation", a.Type)
}

// class says what an error of the server means: a mistake of whoever asked, or a failure.
func (e errorData) class(op string) (mistake string, err error) {
	class := sandbox.Protocol
	switch e.Code {
	case "VALIDATION_ERROR":
		var lines []string
		for _, one := range e.Errors {
			where := strings.Trim(strings.ReplaceAll(fmt.Sprint(one.Loc), " ", "."), "[]")
			lines = append(lines, where+": "+one.Msg)
		}
		return strings.Join(append([]string{e.Message}, lines...), "\n"), nil
	case "CAPACITY_REACHED":
		class = sandbox.Quota
	case "FACTORY_ERROR":
		class = sandbox.StartFailed
	case "SESSION_ERROR":
		class = sandbox.Lost
	case "EXECUTION_ERROR":
		// The environment is who judges, and it ended without a verdict.
		class = sandbox.VerifierCrash
	}
	if op == "reset" && (class == sandbox.Lost || class == sandbox.VerifierCrash) {
		class = sandbox.StartFailed
	}
	return "", sandbox.Fail(class, op, "", "%s: %.2000s", e.Code, e.Message)
}

// reward of an observation. Python's NaN and infinities arrive as null, which is none.
func (o observation) reward() (float64, bool, error) {
	switch text := string(o.Reward); text {
	case "", "null":
		return 0, false, nil
	case "true":
		return 1, true, nil
	case "false":
		return 0, true, nil
	}
	var reward float64
	if err := json.Unmarshal(o.Reward, &reward); err != nil {
		return 0, false, sandbox.Fail(sandbox.VerifierProtocol, "step", "", "the reward is %.100s, expected a number", o.Reward)
	}
	return reward, true, nil
}

// show is what the policy sees of an observation. A field that is null has nothing to see.
func (s *Server) show(o observation) (string, error) {
	var text string
	if s.o.Show == "" {
		text = string(mustMarshal(o.Observation))
	} else if err := json.Unmarshal(o.Observation[s.o.Show], &text); err != nil {
		return "", sandbox.Fail(sandbox.Protocol, "step", "", "the observation has no text %q to show; it has %s", s.o.Show, fields(o.Observation))
	}
	return cut(text, s.o.Shown), nil
}

// cut shortens a text to at most limit bytes, between two characters, and says so.
func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return fmt.Sprintf("%s\n[%d more bytes]", text[:limit], len(text)-limit)
}

func userMessage(text string) json.RawMessage {
	return mustMarshal(map[string]string{"role": "user", "content": text})
}

// Act takes the message's actions one after the other. A fault that the server finds with an action
// is told to the policy; a fault of the server is an error.
func (w *World) Act(ctx context.Context, said episode.Message) (episode.Answer, error) {
	if w.schema == nil {
		return episode.Answer{}, errors.New("openenv: Act before Begin")
	}
	var answer episode.Answer
	for _, action := range w.schema.actions(said) {
		text, err := w.take(ctx, action, &answer)
		if err != nil {
			return episode.Answer{}, err
		}
		message := userMessage(text)
		if action.call != nil {
			message = mustMarshal(map[string]string{"role": "tool", "tool_call_id": action.call.ID, "content": text})
		}
		answer.Messages = append(answer.Messages, message)
		if answer.Done {
			break
		}
	}
	if answer.Rewarded {
		answer.Reward += w.carry
		w.carry = 0
	}
	return answer, nil
}

// take does one action, adds to the answer what it gave, and returns what the policy sees.
func (w *World) take(ctx context.Context, a action, into *episode.Answer) (string, error) {
	if a.mistake != "" {
		return a.mistake, nil
	}
	observed, mistake, err := w.step(ctx, a.data)
	if err != nil || mistake != "" {
		return cut(mistake, w.server.o.Shown), err
	}
	reward, rewarded, err := observed.reward()
	if err != nil {
		return "", err
	}
	into.Reward += reward
	into.Rewarded = into.Rewarded || rewarded
	into.Done = observed.Done
	if w.schema.mode == Tools {
		return w.server.showResult(observed), nil
	}
	return w.server.show(observed)
}

// step sends one step, and never again.
func (w *World) step(ctx context.Context, data json.RawMessage) (observation, string, error) {
	w.mu.Lock()
	wire := w.wire
	w.mu.Unlock()
	if wire == nil {
		return observation{}, "", sandbox.Fail(sandbox.Lost, "step", "", "the episode is closed")
	}
	stepping, cancel := context.WithTimeout(ctx, w.server.o.StepTimeout)
	defer cancel()
	answer, err := wire.ask(stepping, "step", data, w.server.o.Ping)
	if err != nil {
		return observation{}, "", after(ctx, sandbox.VerifierTimeout, "step", failed("step", err))
	}
	return w.observe("step", answer)
}

// failed gives the error of a connection its class; one of the caller's time stays as it is.
func failed(op string, err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return err
	}
	return sandbox.Fail(lost(err), op, "", "%w", err)
}

// Close ends the episode at once.
func (w *World) Close(context.Context) error {
	w.mu.Lock()
	wire := w.wire
	w.wire, w.closed = nil, true
	w.mu.Unlock()
	if wire != nil {
		wire.hangUp()
	}
	return nil
}
