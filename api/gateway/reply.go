package gateway

import (
	"crypto/rand"
	"encoding/json"
	"slices"

	"github.com/headway-rl/headway/api/calls"
	"github.com/headway-rl/headway/loop"
)

// newID names a reply.
func newID(chat bool) string {
	if chat {
		return "chatcmpl-" + rand.Text()
	}
	return "cmpl-" + rand.Text()
}

// reply is a whole answer.
type reply struct {
	ID      string       `json:"id"`
	Object  string       `json:"object"`
	Created int64        `json:"created"`
	Model   string       `json:"model"`
	Choices []choiceJSON `json:"choices"`
	Usage   usage        `json:"usage"`
	// PromptTokenIDs stand here in a chat, and in the choice of a completion: where vLLM has them.
	PromptTokenIDs []int32 `json:"prompt_token_ids,omitempty"`
}

// choiceJSON is a choice of a chat, which has a message, or of a completion, which has a text.
type choiceJSON struct {
	Index          int             `json:"index"`
	Message        *answer         `json:"message,omitempty"`
	Text           *string         `json:"text,omitempty"`
	Logprobs       json.RawMessage `json:"logprobs"`
	FinishReason   string          `json:"finish_reason"`
	PromptTokenIDs []int32         `json:"prompt_token_ids,omitempty"`
	TokenIDs       []int32         `json:"token_ids,omitempty"`
	Headway        json.RawMessage `json:"headway"`
}

// provenance is what a choice says of how it was sampled.
type provenance struct {
	// Branch is the sequence of the rollout that it was added to; Began why that is a new one.
	Branch int    `json:"branch"`
	Began  string `json:"began,omitempty"`
	// Versions are the policy versions of its tokens, a run of tokens each.
	Versions []versionRun `json:"versions"`
	// Overridden names the settings of the client that the run's took the place of.
	Overridden []string `json:"overridden,omitempty"`
	// Pruned: the run stopped the response.
	Pruned bool `json:"pruned,omitempty"`
	// Calls are attempts to call a tool, by what became of them; left out where there were none.
	Calls map[string]int `json:"calls,omitempty"`
}

// versionRun is a stretch of a response's tokens, half-open, that one version sampled.
type versionRun struct {
	Version loop.Version `json:"version"`
	Start   int          `json:"start"`
	End     int          `json:"end"`
}

// runs are the stretches of equal versions.
func runs(versions []loop.Version) []versionRun {
	all := []versionRun{}
	for i, v := range versions {
		if i == 0 || versions[i-1] != v {
			all = append(all, versionRun{Version: v, Start: i})
		}
		all[len(all)-1].End = i + 1
	}
	return all
}

// record is a choice's provenance as JSON.
func (c *choice) record() []byte {
	p := provenance{Branch: c.reply.Branch, Began: c.why, Versions: runs(c.reply.Versions), Overridden: c.overridden, Pruned: c.reply.Finish == "pruned"}
	counts := c.scanner.Counts()
	for _, s := range calls.Statuses() {
		if counts[s] > 0 {
			if p.Calls == nil {
				p.Calls = make(map[string]int)
			}
			p.Calls[s.String()] = counts[s]
		}
	}
	text, err := json.Marshal(p)
	if err != nil {
		panic("gateway: numbers and names are no JSON: " + err.Error())
	}
	return text
}

// answer is the choice's message. A call that turned out to be none is text of it.
func (c *choice) answer() answer {
	a := newAnswer(string(c.text), slices.DeleteFunc(slices.Clone(c.calls), func(call toolCall) bool { return call.broken }))
	if !c.hidden {
		a.Reasoning = string(c.reasoning)
	}
	return a
}

// told are the messages that clients may make of the choice: its answer, and that of a stream, which cannot
// take back the beginning of a call that turned out to be none.
func (c *choice) told() []answer {
	whole := c.answer()
	whole.Reasoning = string(c.reasoning)
	if len(whole.ToolCalls) == len(c.calls) {
		return []answer{whole}
	}
	streamed := newAnswer(string(c.text), c.calls)
	streamed.Reasoning = whole.Reasoning
	return []answer{whole, streamed}
}

// canonicalAnswer is a response's message in the form by which it is recognised in later requests.
func canonicalAnswer(a answer) []byte {
	text, err := json.Marshal(a)
	if err != nil {
		panic("gateway: texts are no JSON: " + err.Error())
	}
	return canonicalMessage(text)
}

// reply makes the whole answer of a request.
func (c *call) reply(choices []*choice, id string, created int64) reply {
	r := reply{ID: id, Object: "text_completion", Created: created, Model: c.gateway.opt.Model, Usage: c.usage}
	if c.req.chat {
		if r.Object = "chat.completion"; c.req.tokenIDs {
			r.PromptTokenIDs = c.prompt.tokens
		}
	}
	for _, ch := range choices {
		one := choiceJSON{Index: ch.index, FinishReason: ch.finish, Headway: ch.record()}
		if c.req.chat {
			message := ch.answer()
			one.Message = &message
		} else {
			text := string(ch.text)
			one.Text = &text
		}
		if c.req.logprobs {
			one.Logprobs = appendLogprobs(nil, c.req.chat, ch.reply.Tokens, ch.reply.Logprobs)
		}
		if c.req.tokenIDs {
			if one.TokenIDs = ch.reply.Tokens; !c.req.chat {
				one.PromptTokenIDs = c.prompt.tokens
			}
		}
		r.Choices = append(r.Choices, one)
	}
	return r
}
