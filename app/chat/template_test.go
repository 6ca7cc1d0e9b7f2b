package chat

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/env"
)

// A chat of one message is the prompt that the embedded task itself makes, and a chat that goes on
// begins with what was rendered before.
func TestLetterTemplate(t *testing.T) {
	vocabulary := env.NewVocabulary("abc")
	l := embeddedTemplate{vocabulary}
	render := func(messages string, generation bool) []int32 {
		t.Helper()
		tokens, err := l.Render(t.Context(), []byte(messages), nil, generation)
		if err != nil {
			t.Fatal(err)
		}
		return tokens
	}
	const a, b, c = 3, 4, 5
	if got, want := render(`[{"role": "user", "content": "ab"}]`, true), []int32{env.Begin, a, b, env.Separator}; !slices.Equal(got, want) {
		t.Errorf("a prompt is %v, want %v", got, want)
	}
	if got, want := render(`[{"role": "system", "content": null}, {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]`, true), []int32{env.Begin, a, b, env.Separator}; !slices.Equal(got, want) {
		t.Errorf("the same in parts is %v, want %v", got, want)
	}
	turn := render(`[{"role": "user", "content": "ab"}, {"role": "assistant", "content": "ba"}, {"role": "user", "content": "c"}]`, true)
	if want := []int32{env.Begin, a, b, env.Separator, b, a, env.End, c, env.Separator}; !slices.Equal(turn, want) {
		t.Errorf("a second turn is %v, want %v", turn, want)
	}
	if text, err := l.Decode(t.Context(), turn); err != nil || text != "abbac" {
		t.Errorf("it reads as %q, %v", text, err)
	}
	refused := func(err error) bool {
		var refusal *protocol.Refusal
		return errors.As(err, &refusal) && strings.Contains(refusal.Message, "python -m headway.chat")
	}
	if _, err := l.Render(t.Context(), []byte(`[{"role": "user", "content": "a1"}]`), nil, true); !refused(err) {
		t.Errorf("a letter without a token: %v", err)
	}
	if _, err := l.Render(t.Context(), []byte(`[{"role": "user", "content": "a"}]`), []byte(`[{}]`), true); !refused(err) {
		t.Errorf("tools: %v", err)
	}
	if _, err := l.Encode(t.Context(), "xyz"); !refused(err) {
		t.Errorf("a text without tokens: %v", err)
	}
}
