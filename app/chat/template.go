package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/env"
	"github.com/headway-rl/headway/loop/media"
	"github.com/headway-rl/headway/loop/port"
)

// serverTemplate renders chats and reads texts by servers. What a server refuses is the client's to
// correct: asked again it would refuse again.
type serverTemplate struct{ *upstream.Templates }

// Render implements gateway.Templates.
func (t serverTemplate) Render(ctx context.Context, messages, tools []byte, generation bool) ([]int32, error) {
	tokens, err := t.Templates.Render(ctx, messages, tools, generation)
	return tokens, refusedByServer(err, "messages")
}

// Encode implements gateway.Templates.
func (t serverTemplate) Encode(ctx context.Context, text string) ([]int32, error) {
	tokens, err := t.Templates.Encode(ctx, text)
	return tokens, refusedByServer(err, "prompt")
}

// Decode implements gateway.Templates. Where no server has a tokenizer there is no text: whoever asks by
// token ids is served without.
func (t serverTemplate) Decode(ctx context.Context, tokens []int32) (string, error) {
	text, err := t.Templates.Decode(ctx, tokens)
	if errors.Is(err, upstream.ErrNoTokenizer) {
		return "", nil
	}
	return text, err
}

// See implements gateway.Seer.
func (t serverTemplate) See(ctx context.Context, modality string) (int32, media.Processor, error) {
	sight, err := t.Templates.See(ctx, modality)
	if errors.Is(err, port.ErrMedia) {
		err = protocol.Refuse(protocol.CodeInvalid, "the chat has an image, and no engine of this run takes one: %v", err).With("field", "messages")
	}
	return sight.Pad, sight.Processor, refusedByServer(err, "messages")
}

// refusedByServer makes a refusal of a server's word about what was sent. Every other error is the
// server's own.
func refusedByServer(err error, field string) error {
	switch status := upstream.StatusOf(err); {
	case status == http.StatusBadRequest, status == http.StatusRequestEntityTooLarge, status == http.StatusUnprocessableEntity, errors.Is(err, upstream.ErrRefused):
		return protocol.Refuse(protocol.CodeInvalid, "the server that renders refuses the %s: %v", field, err).With("field", field)
	}
	return err
}

// noTemplate is the template of a run whose engine is a service, without a server that renders.
type noTemplate struct{}

func (noTemplate) refuse(field string) error {
	return protocol.Refuse(protocol.CodeInvalid, "the engine of this run is a service that renders no chats. Send a prompt of token ids to /v1/completions, or name a server that renders in gateway.template").With("field", field)
}

// Render implements gateway.Templates.
func (t noTemplate) Render(context.Context, []byte, []byte, bool) ([]int32, error) {
	return nil, t.refuse("messages")
}

// Encode implements gateway.Templates.
func (t noTemplate) Encode(context.Context, string) ([]int32, error) { return nil, t.refuse("prompt") }

// Decode implements gateway.Templates: whoever asks by token ids is served without a text.
func (noTemplate) Decode(context.Context, []int32) (string, error) { return "", nil }

// withText is what an agent does that wants to chat in words without a server.
const withText = "a policy that reads and writes text is served on this machine by: python -m headway.chat (docs/agents.md)"

// embeddedTemplate renders chats for the model of an embedded task: the letters of what is said, the
// separator where the assistant is to speak, the end where it has. What a task's own prompt would be
// is a chat of one message.
type embeddedTemplate struct{ vocabulary env.Vocabulary }

// Render implements gateway.Templates. Tools have no letters and are refused.
func (l embeddedTemplate) Render(_ context.Context, messages, tools []byte, generation bool) ([]int32, error) {
	if len(tools) > 0 {
		return nil, protocol.Refuse(protocol.CodeInvalid, "the embedded task's letters cannot say what tools there are; "+withText).With("field", "tools")
	}
	var chat []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	}
	if err := json.Unmarshal(messages, &chat); err != nil {
		return nil, protocol.Refuse(protocol.CodeInvalid, "the messages are no chat: %v", err).With("field", "messages")
	}
	tokens := []int32{env.Begin}
	for i, m := range chat {
		if !slices.Contains([]string{"system", "developer", "user", "assistant", "tool"}, m.Role) {
			return nil, protocol.Refuse(protocol.CodeInvalid, "messages[%d].role is %.40q: want system, user, assistant or tool", i, m.Role).With("field", fmt.Sprintf("messages[%d].role", i))
		}
		said, err := l.letters(contentText(m.Content), "messages")
		if err != nil {
			return nil, err
		}
		if m.Role == "assistant" {
			tokens = append(append(append(tokens, env.Separator), said...), env.End)
		} else {
			tokens = append(tokens, said...)
		}
	}
	if generation {
		tokens = append(tokens, env.Separator)
	}
	return tokens, nil
}

// contentText is the text of a message, which may be in parts.
func contentText(content json.RawMessage) string {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return text
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if json.Unmarshal(content, &parts) != nil {
		return ""
	}
	var b strings.Builder
	for _, part := range parts {
		b.WriteString(part.Text)
	}
	return b.String()
}

// Encode implements gateway.Templates.
func (l embeddedTemplate) Encode(_ context.Context, text string) ([]int32, error) {
	return l.letters(text, "prompt")
}

func (l embeddedTemplate) letters(text, field string) ([]int32, error) {
	tokens, err := l.vocabulary.Encode(text)
	if err != nil {
		return nil, protocol.Refuse(protocol.CodeInvalid, "the embedded model has no token for it: %v; "+withText, err).With("field", field)
	}
	return tokens, nil
}

// Decode implements gateway.Templates.
func (l embeddedTemplate) Decode(_ context.Context, tokens []int32) (string, error) {
	letters := make([]int32, 0, len(tokens))
	for _, token := range tokens {
		if token != env.Begin && token != env.Separator && token != env.End {
			letters = append(letters, token)
		}
	}
	return l.vocabulary.Decode(letters), nil
}
