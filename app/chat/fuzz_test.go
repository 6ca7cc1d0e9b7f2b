package chat

import (
	"testing"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/env"
)

// FuzzChat: an agent's messages may be anything. The embedded model reads them as its letters, or they are refused as
// the agent's mistake.
func FuzzChat(f *testing.F) {
	f.Add([]byte(`[{"role":"user","content":"abc"},{"role":"assistant","content":[{"type":"text","text":"cba"}]}]`))
	f.Add([]byte(`[{"role":"user","content":null}]`))
	f.Add([]byte(`{"role":1}`))
	template := embeddedTemplate{env.NewVocabulary("abc1+= ")}
	f.Fuzz(func(t *testing.T, messages []byte) {
		tokens, err := template.Render(t.Context(), messages, nil, true)
		if err != nil {
			if protocol.RefusalOf(err).Code != protocol.CodeInvalid {
				t.Errorf("%v is no mistake of the agent's", err)
			}
			return
		}
		if text, err := template.Decode(t.Context(), tokens); err != nil || len(tokens) > len(messages)+2 {
			t.Errorf("%d tokens of %d bytes, which are %q: %v", len(tokens), len(messages), text, err)
		}
	})
}
