package scorer

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"testing"
)

// FuzzAnswers reads anything as an answer of either kind: it is refused, or has a number for every value.
func FuzzAnswers(f *testing.F) {
	q, _ := ask([]int32{1, 2, 19, 4, 5}, []uint8{0, 0, 1, 0, 1}, 2, 20)
	for _, kind := range []string{"vllm", "sglang"} {
		s := &server{kind: kind, model: model{"x", 20}}
		call := dialects[kind].call(q, "")
		r := httptest.NewRequest("POST", call.Path, bytes.NewReader(call.Body))
		answer := s.vllm
		if kind == "sglang" {
			answer = s.sglang
		}
		said, err := answer(r)
		if err != nil {
			f.Fatal(err)
		}
		text, _ := json.Marshal(said)
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for kind, d := range dialects {
			a := newAnswer(q)
			if d.read(text, q, &a) != nil || a.check(q) != nil {
				continue
			}
			for _, s := range a.scores(Teacher, q, 0) {
				if len(s.Data) != 2*4*3 {
					t.Errorf("%s: %d bytes for two rows of three values", kind, len(s.Data))
				}
			}
			for _, x := range append(a.top, a.own...) {
				if x-x != 0 || x > logprobMost {
					t.Errorf("%s: the log-prob %g", kind, x)
				}
			}
		}
	})
}
