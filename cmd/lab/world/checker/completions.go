package checker

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/headway-rl/headway/cmd/lab/world/history"
)

// completion is a request of an agent for responses, as far as the agent was told of what became of it.
type completion struct {
	call
	choices, most int
	// prompt are its tokens, nil where they were not told.
	prompt []int32
	// said are the responses, in their order: those with a finish are complete.
	said []response
	// beyond are the places of responses that were answered, and were not asked for.
	beyond []int
	// later: it was refused and may be sent again, so that nothing of it is recorded.
	later bool
	// may is how many responses may be recorded that the agent was not told of.
	may int
}

// response is one that an agent was told of.
type response struct {
	tokens []int32
	text   string
	finish string
}

// completion reads a chat, and what came of it.
func (t *testimony) completion(at call, x *history.Exchange) {
	var request struct {
		Prompt []int32 `json:"prompt"`
		N      int     `json:"n"`
		Most   int     `json:"max_tokens"`
		Stream bool    `json:"stream"`
	}
	if json.Unmarshal(x.Request, &request) == nil && len(request.Prompt) > 0 {
		t.prompts[promptKey(request.Prompt)] = true
	}
	id, ok := t.keys[x.Bearer]
	if !ok {
		return
	}
	t.names(at, x, named{id: id, kind: "completion"})
	c := completion{call: at, choices: max(request.N, 1), most: request.Most, prompt: request.Prompt}
	refused, ended := c.read(x, request.Stream)
	switch {
	case ended && at.whole: // it is complete
	case slices.Contains([]string{"busy", "unavailable"}, refused):
		c.later = true
	case !at.whole || refused != "" && at.status != 400 && at.status != 410:
		c.may = c.choices - c.complete()
	}
	if c.prompt != nil {
		t.prompts[promptKey(c.prompt)] = true
	}
	t.completions[id] = append(t.completions[id], c)
	t.told(&c, ended)
}

// complete is how many of the responses are.
func (c *completion) complete() int {
	n := 0
	for _, r := range c.said {
		if r.finish != "" {
			n++
		}
	}
	return n
}

// read reads an answer in one piece or in events. It returns the code of a refusal, and whether the answer came to its
// own end.
func (c *completion) read(x *history.Exchange, stream bool) (refused string, ended bool) {
	texts := [][]byte{x.Response}
	if stream && x.Status == 200 {
		texts = texts[:0]
		for event := range bytes.SplitSeq(x.Response, []byte("\n\n")) {
			data, ok := bytes.CutPrefix(event, []byte("data: "))
			if ended = ended || string(data) == "[DONE]"; ok {
				texts = append(texts, data)
			}
		}
	}
	for _, text := range texts {
		var event struct {
			Error   *struct{ Code string } `json:"error"`
			Prompt  []int32                `json:"prompt_token_ids"`
			Choices []struct {
				Index   int                      `json:"index"`
				Tokens  []int32                  `json:"token_ids"`
				Finish  string                   `json:"finish_reason"`
				Message struct{ Content string } `json:"message"`
				Delta   struct{ Content string } `json:"delta"`
			} `json:"choices"`
		}
		if json.Unmarshal(text, &event) != nil {
			continue // the mark of the end, a comment, or an event that broke off
		}
		if event.Error != nil {
			return cmp.Or(event.Error.Code, "unknown"), false
		}
		if event.Prompt != nil {
			c.prompt = event.Prompt
		}
		for _, one := range event.Choices {
			if one.Index < 0 || one.Index >= c.choices {
				c.beyond = append(c.beyond, one.Index)
				continue
			}
			for len(c.said) <= one.Index {
				c.said = append(c.said, response{})
			}
			r := &c.said[one.Index]
			r.tokens, r.finish = append(r.tokens, one.Tokens...), r.finish+one.Finish
			r.text += one.Message.Content + one.Delta.Content
		}
	}
	return "", ended || !stream && x.Status == 200
}

// told checks an answer by itself: each response that ends with a reason ends as the reason says.
func (t *testimony) told(c *completion, ended bool) {
	s := t.c.sampler
	if ended && c.whole && c.complete() != c.choices {
		t.c.fail(RuleResponse, c.line, "%d of %d responses were answered in full by an answer that came to its end", c.complete(), c.choices)
	}
	if len(c.beyond) > 0 {
		t.c.fail(RuleResponse, c.line, "responses %v were answered, and %d were asked for", c.beyond, c.choices)
	}
	if c.later && c.complete() > 0 {
		t.c.fail(RuleResponse, c.line, "%s was told to ask again later, behind %d responses that are complete", c.host, c.complete())
	}
	for i, r := range c.said {
		n := len(r.tokens)
		switch {
		case r.finish == "":
			continue
		case n == 0:
			t.c.fail(RuleResponse, c.line, "response %d ends by %q, and has no token", i, r.finish)
		case r.finish == "stop" && r.tokens[n-1] != s.EOS:
			t.c.fail(RuleResponse, c.line, "response %d ends by stop after the token %d", i, r.tokens[n-1])
		case r.finish == "length" && c.most > 0 && n != c.most:
			t.c.fail(RuleResponse, c.line, "response %d ends by length after %d tokens, and %d were asked for", i, n, c.most)
		case r.text != s.spell(r.tokens):
			t.c.fail(RuleResponse, c.line, "response %d has the text %q, and its tokens %v say %q", i, r.text, r.tokens, s.spell(r.tokens))
		}
	}
}

// spell is the text of tokens: the EOS has none.
func (s *Sampler) spell(tokens []int32) string {
	var text strings.Builder
	for _, token := range tokens {
		if token != s.EOS {
			fmt.Fprintf(&text, "<%d>", token)
		}
	}
	return text.String()
}

// recorded compares the responses of a rollout in a batch with those that its agent was told of. Each of these is there.
// Any other was under way as its client left, or was lost on its way to the agent.
func (c *check) recorded(line int, id attemptID, sequences []sequence) {
	asked := slices.Clone(c.said.completions[id]) // a batch that is given out again has the same responses
	if len(asked) == 0 {
		return
	}
	left := map[string]int{} // how often a response is recorded beyond what was told
	length := map[string]int{}
	for i := range sequences {
		s := &sequences[i]
		for from, to := range s.turns() {
			key := promptKey(s.tokens[:from]) + "|" + promptKey(s.tokens[from:to])
			left[key]++
			length[key] = to - from
		}
	}
	told := map[string]bool{}
	for i := range asked {
		k := &asked[i]
		for j, r := range k.said {
			if r.finish == "" || k.prompt == nil {
				continue
			}
			key := promptKey(k.prompt) + "|" + promptKey(r.tokens)
			again := told[key] && c.restarted(asked[:i], k)
			if told[key] = true; left[key] == 0 && again {
				continue
			} else if left[key] == 0 {
				c.fail(RuleResponse, line, "response %d at line %d was complete, and %v was trained without it", j, k.line, id)
			} else {
				left[key]--
			}
		}
	}
	var more []int // the lengths of the others
	for key, n := range left {
		for range n {
			more = append(more, length[key])
		}
	}
	slices.Sort(more)
	for _, n := range slices.Backward(more) {
		if k := c.roomFor(asked, n); k != nil {
			k.may--
			continue
		}
		c.fail(RuleResponse, line, "%v was trained with a response of %d tokens more than its agent was told of, and no request can have left it", id, n)
		return
	}
}

// restarted says whether a process began between earlier requests and one: what was recorded before may be its answer, where
// it asks for the same again.
func (c *check) restarted(before []completion, k *completion) bool {
	return c.log.rules.ResumeRestart && slices.ContainsFunc(before, func(b completion) bool {
		return b.to != k.to || c.started(k.to, b.began, k.at) || c.twinBetween(k.to, b.began, k.at)
	})
}

// checkConflicts reports turns that were refused as conflicts: a worker asks for one after the other, and asks again only
// for the last. One that finishes its rollout has asked before.
func (c *check) checkConflicts() {
	finished := map[attemptID]int64{} // when it was first asked for
	for i := range c.said.finishes {
		f := &c.said.finishes[i]
		if at, ok := finished[f.id]; !ok || f.began < at {
			finished[f.id] = f.began
		}
	}
	for i := range c.said.named {
		n := &c.said.named[i]
		if n.kind != "sample" || !n.whole || n.status != 409 {
			continue
		}
		if at, ok := finished[n.id]; !ok || n.at <= at { // a worker that was refused finishes at once
			c.fail(RuleResponse, n.line, "%s asked for a turn of %v, and met a conflict: %s", n.host, n.id, n.message)
		}
	}
}

// roomFor is a request that may have left a response of so many tokens: it had the time for them before its plane knew that
// nobody waits any more. Of several it is the one that had the most time.
func (c *check) roomFor(asked []completion, tokens int) *completion {
	var best *completion
	most := int64(-1)
	for i := range asked {
		k := &asked[i]
		if k.may <= 0 {
			continue
		}
		time := k.at - k.began
		if before := asked[:i]; c.restarted(before, k) {
			time = max(time, longestLater(before)) // it may have found one that a request before it left in the log
		}
		if !c.reachable(k.host, k.to, k.at-second, k.at+second) {
			time = 1 << 62 // its plane may have learnt of it any time later
		}
		if time > most {
			best, most = k, time
		}
	}
	if most+noticed < int64(tokens)*c.sampler.TokenNS {
		return nil
	}
	return best
}

// longestLater is how long the longest request took that was to be sent again.
func longestLater(asked []completion) (most int64) {
	for i := range asked {
		if k := &asked[i]; k.later {
			most = max(most, k.at-k.began)
		}
	}
	return most
}

// noticed is how long a plane may take to know that a client has left, while nothing is at fault.
const noticed = second / 500
