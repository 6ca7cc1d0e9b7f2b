package checker

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/cmd/lab/world/history"
)

// asking is a chat of 8 tokens at most, for two choices, and its answer after 100 ms.
func asking(stream bool, status int, response, failure string) *history.Line {
	return &history.Line{AtNS: second / 10, Host: "worker0", Kind: "exchange", Exchange: &history.Exchange{
		To: "plane0", Method: "POST", Path: "/v1/chat/completions", Bearer: "key", Status: status, Error: failure,
		Request: fmt.Appendf(nil, `{"n":2,"max_tokens":3,"stream":%t}`, stream), Response: []byte(response),
	}}
}

const (
	wholeAnswer = `{"prompt_token_ids":[1,2],"choices":[{"index":0,"token_ids":[9,4],"finish_reason":"stop","message":{"content":"<9>"}},` +
		`{"index":1,"token_ids":[7,8,9],"finish_reason":"length","message":{"content":"<7><8><9>"}}]}`
	firstEvents = `data: {"prompt_token_ids":[1,2],"choices":[{"index":0,"delta":{"content":""}}]}` + "\n\n" +
		`data: {"choices":[{"index":0,"delta":{"content":"<9>"},"token_ids":[9]}]}` + "\n\n" +
		`data: {"choices":[{"index":0,"delta":{"content":""},"token_ids":[4]}]}` + "\n\n" +
		`data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	lastEvents = `data: {"choices":[{"index":1,"delta":{"content":"<7><8><9>"},"token_ids":[7,8,9]}]}` + "\n\n" +
		`data: {"choices":[{"index":1,"delta":{},"finish_reason":"length"}]}` + "\n\ndata: [DONE]\n\n"
)

// trained is a rollout with a response behind the prompt in each sequence.
func trained(responses ...[]int32) []sequence {
	var all []sequence
	for _, r := range responses {
		mask := make([]byte, 2+len(r))
		for i := range r {
			mask[2+i] = 1
		}
		all = append(all, sequence{tokens: append([]int32{1, 2}, r...), mask: mask})
	}
	return all
}

// What agents were told is held against itself, and against the responses that are trained.
func TestCompletions(t *testing.T) {
	first, second := []int32{9, 4}, []int32{7, 8, 9}
	later := `{"error":{"code":"unavailable","message":"later"}}`
	for name, c := range map[string]struct {
		line   *history.Line
		more   [][]int32 // responses that are trained beside those of a later request for both
		broken string
	}{
		"whole":                         {line: asking(false, 200, wholeAnswer, ""), more: [][]int32{first, second}},
		"stream":                        {line: asking(true, 200, firstEvents+lastEvents, ""), more: [][]int32{first, second}},
		"a response is missing":         {line: asking(false, 200, wholeAnswer, ""), more: [][]int32{first}, broken: "was trained without it"},
		"no time was left":              {line: asking(false, 0, "", "reset"), more: [][]int32{{3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3}}, broken: "no request can have left it"},
		"lost":                          {line: asking(false, 0, "", "reset"), more: [][]int32{first, second}},
		"lost, and nothing recorded":    {line: asking(false, 0, "", "reset")},
		"more than was asked for":       {line: asking(false, 0, "", "reset"), more: [][]int32{first, second, second}, broken: "no request can have left it"},
		"refused for now":               {line: asking(false, 503, later, "")},
		"refused, and recorded":         {line: asking(false, 503, later, ""), more: [][]int32{first}, broken: "no request can have left it"},
		"refused for good, behind one":  {line: asking(false, 409, `{"error":{"code":"conflict"}}`, ""), more: [][]int32{first}},
		"broken off behind one":         {line: asking(true, 200, firstEvents, "reset"), more: [][]int32{first, second}},
		"broken off, and the one lacks": {line: asking(true, 200, firstEvents, "reset"), broken: "was trained without it"},
		"a later word behind one":       {line: asking(true, 200, firstEvents+"data: "+later+"\n\n", ""), more: [][]int32{first}, broken: "ask again later, behind 1"},
		"an early end": {line: asking(true, 200, firstEvents+strings.Replace(lastEvents, "[7,8,9]", "[7,8]", 1), ""),
			more: [][]int32{first, {7, 8}}, broken: "ends by length after 2 tokens"},
		"an end in the middle": {line: asking(true, 200, firstEvents+"data: [DONE]\n\n", ""), more: [][]int32{first}, broken: "1 of 2 responses"},
		"another text":         {line: asking(false, 200, strings.Replace(wholeAnswer, `"<9>"`, `"<8>"`, 1), ""), more: [][]int32{first, second}, broken: "has the text"},
		"a response that nobody asked for": {line: asking(false, 200, strings.Replace(wholeAnswer, `"index":1`, `"index":2`, 1), ""),
			more: [][]int32{first, second}, broken: "responses [2] were answered, and 2 were asked for"},
		"a stop without an end": {line: asking(false, 200, strings.Replace(wholeAnswer, `[9,4]`, `[9,9]`, 1), ""),
			more: [][]int32{{9, 9}, second}, broken: "ends by stop after the token 9"},
	} {
		t.Run(name, func(t *testing.T) {
			k := &check{sampler: Sampler{EOS: 4, TokenNS: 10_000_000}, count: map[string]int{}, log: &ledger{}}
			k.said = hear(k, nil)
			id := attemptID{1, 0, 1}
			k.said.keys["key"] = id
			for _, line := range []*history.Line{c.line, asking(false, 200, wholeAnswer, "")} {
				k.said.completion(call{line: 3, host: line.Host, to: line.Exchange.To, at: line.AtNS, status: line.Exchange.Status, whole: line.Exchange.Error == ""}, line.Exchange)
			}
			for range 2 { // a batch is given out again
				k.recorded(7, id, trained(append(slices.Clone(c.more), first, second)...))
			}
			text := fmt.Sprint(k.found)
			if c.broken == "" && len(k.found) > 0 || !strings.Contains(text, c.broken) {
				t.Errorf("found %v, want %q", k.found, c.broken)
			}
		})
	}
}

// TestCompletionsOverARestart: a request that is refused by the process after may have found a response that the request before
// it had the time for, though that was to be sent again.
func TestCompletionsOverARestart(t *testing.T) {
	later, conflict := `{"error":{"code":"unavailable","message":"later"}}`, `{"error":{"code":"conflict"}}`
	long := slices.Repeat([]int32{3}, 50) // half a second
	for name, restarts := range map[string]bool{"turns are kept": true, "turns are not kept": false} {
		t.Run(name, func(t *testing.T) {
			k := &check{sampler: Sampler{EOS: 4, TokenNS: 10_000_000}, count: map[string]int{}, log: &ledger{}}
			k.log.rules.ResumeRestart = restarts
			k.said = hear(k, nil)
			id, began := attemptID{1, 0, 1}, int64(0)
			k.said.keys["key"] = id
			for _, one := range []struct {
				line *history.Line
				to   string
				took int64
			}{{asking(false, 503, later, ""), "plane0", second}, {asking(false, 409, conflict, ""), "plane1", second / 10}, {asking(false, 200, wholeAnswer, ""), "plane1", second / 10}} {
				one.line.Exchange.To = one.to
				k.said.completion(call{line: 3, host: one.line.Host, to: one.to, began: began, at: began + one.took, status: one.line.Exchange.Status, whole: true}, one.line.Exchange)
				began += one.took
			}
			k.recorded(7, id, trained(long, []int32{9, 4}, []int32{7, 8, 9}))
			if found := len(k.found) > 0; found == restarts {
				t.Errorf("found %v", k.found)
			}
		})
	}
}
