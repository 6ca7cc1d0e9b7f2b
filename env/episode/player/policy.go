package player

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/env/episode"
	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/internal/pause"
)

// errUnwanted ends an episode whose rollout is somebody else's by now, or nobody's.
var errUnwanted = errors.New("the rollout is no longer wanted")

// completionsPath is where the gateway samples chats.
const completionsPath = "/v1/chat/completions"

// chatPolicy is the run's policy for one rollout, behind the gateway's handler.
type chatPolicy struct {
	gateway http.Handler
	rollout string
	// newest is the highest version that it was heard to speak with, 0 for none.
	newest int64
}

// Say implements episode.Policy. It asks again while the gateway says that it cannot answer now.
func (p *chatPolicy) Say(ctx context.Context, messages []json.RawMessage, tools json.RawMessage) (episode.Message, error) {
	body, err := json.Marshal(struct {
		Messages []json.RawMessage `json:"messages"`
		Tools    json.RawMessage   `json:"tools,omitempty"`
	}{messages, tools})
	if err != nil {
		return episode.Message{}, sandbox.Fail(sandbox.Protocol, "say", "", "a message of the chat is no JSON: %w", err)
	}
	for {
		answer := p.post(ctx, body)
		if ctx.Err() != nil {
			return episode.Message{}, context.Cause(ctx)
		}
		if answer.status == http.StatusOK {
			message, err := messageOf(answer.body.Bytes())
			p.newest = max(p.newest, message.VersionHigh)
			return message, err
		}
		again, err := refused(answer)
		if err != nil {
			return episode.Message{}, err
		}
		if err := pause.For(ctx, again); err != nil {
			return episode.Message{}, err
		}
	}
}

func (p *chatPolicy) post(ctx context.Context, body []byte) *replyWriter {
	w := &replyWriter{header: make(http.Header), status: http.StatusOK}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, completionsPath, bytes.NewReader(body))
	if err != nil {
		panic("player: a constant path is no address: " + err.Error())
	}
	r.Header.Set(protocol.RolloutHeader, p.rollout)
	r.Header.Set("Content-Type", "application/json")
	p.gateway.ServeHTTP(w, r)
	return w
}

// refused says how long to wait before asking again, or why that does not help.
func refused(w *replyWriter) (time.Duration, error) {
	var body struct {
		Error protocol.CompletionError `json:"error"`
	}
	if err := json.Unmarshal(w.body.Bytes(), &body); err != nil {
		return 0, sandbox.Fail(sandbox.Protocol, "say", "", "the gateway answers %d without saying why", w.status)
	}
	switch body.Error.Code {
	case protocol.CodeBusy, protocol.CodeUnavailable, protocol.CodeDiskFull:
		seconds, err := strconv.Atoi(w.header.Get("Retry-After"))
		if err != nil || seconds < 1 {
			seconds = 1
		}
		return time.Duration(seconds) * time.Second, nil
	case protocol.CodeContextExceeded, protocol.CodeTooLarge:
		return 0, fmt.Errorf("%w: %s", episode.ErrNoRoom, body.Error.Message)
	case protocol.CodeExpired, protocol.CodeNotFound, protocol.CodeConflict:
		return 0, over(&protocol.Refusal{Message: body.Error.Message, Detail: body.Error.Detail})
	case protocol.CodeInvalid:
		return 0, sandbox.Fail(sandbox.Refused, "say", "", "the gateway refuses the chat: %s", body.Error.Message)
	}
	return 0, sandbox.Fail(episode.PolicyFailed, "say", "", "the gateway answers %d: %s", w.status, body.Error.Message)
}

// over is what the refusal of a rollout that has ended says: its engine was lost, or nobody wants it. One whose
// response is recorded, and cannot be read, has to be ended here.
func over(r *protocol.Refusal) error {
	_, recorded := r.Detail["recorded"]
	switch outcome := r.Detail["outcome"]; {
	case recorded || outcome == "engine failed":
		return sandbox.Fail(episode.PolicyFailed, "say", "", "%s", r.Message)
	case outcome == "not kept":
		return fmt.Errorf("%w: %s", episode.ErrOtherwise, r.Message)
	}
	return fmt.Errorf("%w: %s", errUnwanted, r.Message)
}

// completion is what is read of a gateway's answer.
type completion struct {
	Choices []struct {
		Message json.RawMessage `json:"message"`
		Finish  string          `json:"finish_reason"`
		Headway struct {
			Versions []struct {
				Version int64 `json:"version"`
			} `json:"versions"`
		} `json:"headway"`
	} `json:"choices"`
	Usage struct {
		PromptTokens     int `json:"prompt_tokens"`
		CompletionTokens int `json:"completion_tokens"`
	} `json:"usage"`
}

// assistant is what is read of the policy's message.
type assistant struct {
	Content   *string `json:"content"`
	ToolCalls []struct {
		ID       string `json:"id"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

// messageOf reads an answer of the gateway.
func messageOf(body []byte) (episode.Message, error) {
	var reply completion
	var said assistant
	err := json.Unmarshal(body, &reply)
	if err == nil && len(reply.Choices) != 1 {
		err = fmt.Errorf("%d choices instead of one", len(reply.Choices))
	}
	if err == nil {
		err = json.Unmarshal(reply.Choices[0].Message, &said)
	}
	if err != nil {
		return episode.Message{}, sandbox.Fail(sandbox.Protocol, "say", "", "the gateway's answer cannot be read: %w", err)
	}
	choice := &reply.Choices[0]
	m := episode.Message{Raw: choice.Message, Finish: choice.Finish, Tokens: reply.Usage.CompletionTokens, Prompt: reply.Usage.PromptTokens, VersionLow: -1, VersionHigh: -1}
	if said.Content != nil {
		m.Text = *said.Content
	}
	for _, c := range said.ToolCalls {
		m.Calls = append(m.Calls, episode.Call{ID: c.ID, Name: c.Function.Name, Arguments: c.Function.Arguments})
	}
	for i, run := range choice.Headway.Versions {
		if i == 0 {
			m.VersionLow, m.VersionHigh = run.Version, run.Version
		}
		m.VersionLow, m.VersionHigh = min(m.VersionLow, run.Version), max(m.VersionHigh, run.Version)
	}
	return m, nil
}

// replyWriter is a response in memory.
type replyWriter struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (w *replyWriter) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *replyWriter) WriteHeader(status int) { w.status = status }

// Write implements http.ResponseWriter.
func (w *replyWriter) Write(text []byte) (int, error) { return w.body.Write(text) }
