package llamacpp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/headway-rl/headway/engine/upstream"
)

// probed stands for an assistant's message while a server is probed.
const probed = "headway-probe"

// probeTemplate asks whether chats are rendered, and to their end.
func (d *Dialect) probeTemplate(ctx context.Context, s *upstream.Server, own *learnt, caps *upstream.Capabilities) error {
	chat := json.RawMessage(`[{"role":"user","content":"?"},{"role":"assistant","content":"` + probed + `"}]`)
	text, err := apply(ctx, s, chat, nil, false)
	if status := upstream.StatusOf(err); status/100 == 4 || status/100 == 5 || errors.Is(err, upstream.ErrLied) {
		caps.Missing = append(caps.Missing, upstream.Missing{What: "it renders no chats", Flag: "--jinja, and --chat-template-file where the model has no template"})
		return nil
	}
	if err != nil {
		return err
	}
	caps.Template = true
	if own.ends = !strings.HasSuffix(text, probed); !own.ends {
		caps.Missing = append(caps.Missing, upstream.Missing{
			What: "a chat whose last message is the assistant's is rendered without what ends that message", Flag: "--no-prefill-assistant"})
	}
	return nil
}

// apply renders a chat as text.
func apply(ctx context.Context, s *upstream.Server, messages, tools json.RawMessage, generation bool) (string, error) {
	body := struct {
		Messages   json.RawMessage `json:"messages"`
		Tools      json.RawMessage `json:"tools,omitempty"`
		Generation bool            `json:"add_generation_prompt"`
	}{messages, tools, generation}
	var reply struct {
		Prompt *string `json:"prompt"`
	}
	if err := post(ctx, s, "/apply-template", body, &reply); err != nil {
		return "", err
	}
	if reply.Prompt == nil {
		return "", fmt.Errorf("%w: /apply-template answers without a prompt", upstream.ErrLied)
	}
	return *reply.Prompt, nil
}

// Render implements upstream.Templater. Where the model wants a token for the beginning, the server
// leaves its text out of the rendered text and puts the token before it. This template does the
// same.
func (*Dialect) Render(ctx context.Context, s *upstream.Server, messages, tools []byte, generation bool, caps *upstream.Capabilities) ([]int32, error) {
	own, ok := caps.Private.(*learnt)
	if ok && !own.ends && endsWithAssistant(messages) {
		return nil, fmt.Errorf("%w: this chat's last message is the assistant's, which llama-server renders without its end: start it with --no-prefill-assistant", upstream.ErrRefused)
	}
	text, err := apply(ctx, s, messages, tools, generation)
	if upstream.StatusOf(err) == http.StatusInternalServerError { // how it says that the template cannot read the chat
		return nil, fmt.Errorf("%w: %w", upstream.ErrRefused, err)
	}
	if err != nil {
		return nil, err
	}
	return tokenize(ctx, s, text, true, true)
}

// endsWithAssistant reports whether a chat's last message is the assistant's.
func endsWithAssistant(messages []byte) bool {
	var chat []struct {
		Role string `json:"role"`
	}
	return json.Unmarshal(messages, &chat) == nil && len(chat) > 0 && chat[len(chat)-1].Role == "assistant"
}

// tokenize reads a text. beginning puts the token before it that a model may want there; special
// reads the names of special tokens as those.
func tokenize(ctx context.Context, s *upstream.Server, text string, beginning, special bool) ([]int32, error) {
	body := struct {
		Content   string `json:"content"`
		Beginning bool   `json:"add_special"`
		Special   bool   `json:"parse_special"`
	}{text, beginning, special}
	var reply struct {
		Tokens []int32 `json:"tokens"`
	}
	err := post(ctx, s, "/tokenize", body, &reply)
	if err == nil && reply.Tokens == nil {
		err = fmt.Errorf("%w: /tokenize answers without tokens", upstream.ErrLied)
	}
	return reply.Tokens, err
}

// detokenize is the text of tokens, the names of special ones included.
func detokenize(ctx context.Context, s *upstream.Server, tokens []int32) (string, error) {
	if tokens == nil {
		tokens = []int32{}
	}
	body := struct {
		Tokens []int32 `json:"tokens"`
	}{tokens}
	var reply struct {
		Content *string `json:"content"`
	}
	if err := post(ctx, s, "/detokenize", body, &reply); err != nil {
		return "", err
	}
	if reply.Content == nil {
		return "", fmt.Errorf("%w: /detokenize answers without content", upstream.ErrLied)
	}
	return *reply.Content, nil
}

// Encode implements upstream.Templater.
func (*Dialect) Encode(ctx context.Context, s *upstream.Server, text string, _ *upstream.Capabilities) ([]int32, error) {
	return tokenize(ctx, s, text, false, true)
}

// Decode implements upstream.Templater. The server writes special tokens out by their names and says
// of none that it is special. A name that is read as plain text gives other tokens.
func (*Dialect) Decode(ctx context.Context, s *upstream.Server, tokens []int32, caps *upstream.Capabilities) (string, error) {
	own, ok := caps.Private.(*learnt)
	if !ok {
		return detokenize(ctx, s, tokens)
	}
	plain := make([]int32, 0, len(tokens))
	for _, token := range tokens {
		special, err := own.isSpecial(ctx, s, token)
		if err != nil {
			return "", err
		}
		if !special {
			plain = append(plain, token)
		}
	}
	return detokenize(ctx, s, plain)
}

// isSpecial asks once for each token.
func (l *learnt) isSpecial(ctx context.Context, s *upstream.Server, token int32) (bool, error) {
	l.mu.Lock()
	special, known := l.special[token]
	l.mu.Unlock()
	if known {
		return special, nil
	}
	text, err := detokenize(ctx, s, []int32{token})
	if err != nil {
		return false, err
	}
	if len(text) > 1 { // one character has no name
		special, err = namesToken(ctx, s, text, token)
	}
	if err != nil {
		return false, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.special[token] = special
	return special, nil
}

// namesToken reports whether a text is the name of a special token: read with names it is that
// token, read without it is not.
func namesToken(ctx context.Context, s *upstream.Server, text string, token int32) (bool, error) {
	named, err := tokenize(ctx, s, text, false, true)
	if err != nil || len(named) != 1 || named[0] != token {
		return false, err
	}
	plain, err := tokenize(ctx, s, text, false, false)
	return err == nil && (len(plain) != 1 || plain[0] != token), err
}
