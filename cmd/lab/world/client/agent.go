package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"time"
)

// agentTries is how often an agent asks for one turn that is refused, or whose stream breaks off.
const agentTries = 4

// agentLimit is how long the library waits for an answer.
const agentLimit = 600 * time.Second

// Agent talks to the policy as a program with a library of OpenAI's does, under the key of a claim. It is no part of the
// Python client: its worker claims the rollout, and finishes it.
type Agent struct {
	// Turns is the number of requests of a rollout, Choices that of the responses to each. Tokens bounds a response.
	Turns, Choices, Tokens int
	// Stream: answers come as events.
	Stream bool
	// Leave bounds how long an agent that is in a hurry waits for an answer before it asks again; 0 for one that never is.
	Leave time.Duration
}

// spoken is a response as an agent reads it.
type spoken struct {
	text   string
	tokens []int32
	finish string
}

// Play makes an environment of a conversation that begins with a question. The last response is judged.
func (a Agent) Play(ask func(*Task) Question) Play {
	return func(ctx context.Context, task *Task) (Result, error) {
		question := ask(task)
		chat := []Message{{"user", question.Text}}
		for turn := 1; ; turn++ {
			said, err := a.turn(ctx, task, chat)
			if err != nil {
				return Result{}, err
			}
			if turn == a.Turns {
				return judged(question, said.text, said.tokens)
			}
			chat = append(chat, Message{"assistant", said.text}, Message{"user", "go on"})
		}
	}
}

// turn asks for the next message until it is there, and takes one of the choices.
func (a Agent) turn(ctx context.Context, task *Task, chat []Message) (spoken, error) {
	var failed error
	for range agentTries {
		if !task.Wanted() {
			return spoken{}, ErrUnwanted
		}
		choices, err := a.hurry(ctx, task, chat)
		switch {
		case err == nil:
			return choices[int(task.worker.transport.uniform(0, float64(len(choices))))], nil
		case ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded): // it has left
		case IsKind(err, Conflict, Busy, Unavailable):
		default:
			return spoken{}, err
		}
		failed = err
	}
	return spoken{}, failed
}

// hurry asks once. Every other time, an agent that may be in a hurry is.
func (a Agent) hurry(ctx context.Context, task *Task, chat []Message) ([]spoken, error) {
	if limit := task.worker.transport.uniform(-1, 1); a.Leave > 0 && limit > 0 {
		hurried, cancel := context.WithTimeout(ctx, time.Duration(limit*float64(a.Leave)))
		defer cancel()
		ctx = hurried
	}
	message := map[string]any{"model": "policy", "messages": chat, "max_tokens": a.Tokens, "n": a.Choices, "stream": a.Stream, "logprobs": true, "return_token_ids": true}
	found, err := task.answer(ctx, call{path: "/v1/chat/completions", message: message, headers: map[string]string{"Authorization": "Bearer " + task.key}, limit: agentLimit}, nil)
	if err != nil {
		return nil, err
	}
	choices, err := a.read(found)
	if err == nil && len(choices) != a.Choices {
		err = refuse(Internal, "%d choices where %d were asked for", len(choices), a.Choices)
	}
	return choices, err
}

// part is a part of a choice: a message of a whole answer, or an event's piece of it.
type part struct {
	Index   int     `json:"index"`
	Tokens  []int32 `json:"token_ids"`
	Finish  string  `json:"finish_reason"`
	Message words   `json:"message"`
	Delta   words   `json:"delta"`
}

type words struct {
	Content string `json:"content"`
}

// read reads an answer's choices.
func (a Agent) read(found *answer) ([]spoken, error) {
	texts := [][]byte{found.body}
	if a.Stream {
		texts = texts[:0]
		for event := range bytes.SplitSeq(found.body, []byte("\n\n")) {
			if data, ok := bytes.CutPrefix(event, []byte("data: ")); ok && string(data) != "[DONE]" {
				texts = append(texts, data)
			}
		}
	}
	var choices []spoken
	for _, text := range texts {
		var event struct {
			Error   json.RawMessage `json:"error"`
			Choices []part          `json:"choices"`
		}
		if json.Unmarshal(text, &event) != nil {
			return nil, refuse(Internal, "the answer %q is no chat completion", cut(string(text), 200))
		}
		if event.Error != nil {
			return nil, refusal(found.status, text)
		}
		for _, c := range event.Choices {
			for len(choices) <= c.Index {
				choices = append(choices, spoken{})
			}
			of := &choices[c.Index]
			of.text += c.Message.Content + c.Delta.Content
			of.tokens = append(of.tokens, c.Tokens...)
			of.finish += c.Finish
		}
	}
	for _, c := range choices {
		if c.finish == "" {
			return nil, refuse(Unavailable, "the stream ends before the response does")
		}
	}
	return choices, nil
}
