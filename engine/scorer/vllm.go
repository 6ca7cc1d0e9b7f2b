package scorer

import (
	"slices"
	"strconv"

	"github.com/headway-rl/headway/engine/upstream"
)

// vllm asks for the log-probs of a prompt by /v1/completions, which every release has. They are of the model's own
// distribution, whatever --logprobs-mode says of sampled tokens, unless that asks for logits. It says −9999 for −inf, which is refused as SGLang's null is.
type vllm struct{}

func (vllm) call(q *question, model string) upstream.Call {
	b := make([]byte, 0, 256+8*len(q.tokens))
	b = append(b, '{')
	if model != "" {
		b = append(upstream.AppendString(append(b, `"model":`...), model), ',')
	}
	b = upstream.AppendTokens(append(b, `"prompt":`...), q.tokens)
	b = append(b, `,"max_tokens":1,"temperature":1,"return_token_ids":true,"prompt_logprobs":`...)
	b = append(strconv.AppendInt(b, int64(q.top), 10), '}')
	return upstream.Call{Path: "/v1/completions", Body: b}
}

func (vllm) read(body []byte, q *question, a *answer) error {
	r := vllmReader{Scanner: upstream.Scan(body), q: q, a: a}
	ok := r.Object(func(key []byte) bool {
		if string(key) != "choices" {
			return r.Value()
		}
		return r.List(func() bool { r.choices++; return r.choice() })
	})
	switch {
	case r.err != nil:
		return r.err
	case !ok || !r.End():
		return lied("%w is not understood", upstream.Excerpt(body))
	case r.choices != 1 || r.rows != len(q.tokens):
		return lied("%d answers with %d prompt_logprobs for %d tokens", r.choices, r.rows, len(q.tokens))
	case !slices.Equal(r.echo, q.tokens):
		return lied("its prompt_token_ids are %d tokens, and others than the %d that were sent", len(r.echo), len(q.tokens))
	}
	return nil
}

// vllmReader reads one answer.
type vllmReader struct {
	upstream.Scanner
	q             *question
	a             *answer
	choices, rows int
	echo          []int32
	err           error
}

func (r *vllmReader) choice() bool {
	return r.Object(func(key []byte) bool {
		switch string(key) {
		case "prompt_token_ids":
			if r.Null() {
				return true
			}
			r.echo = make([]int32, 0, len(r.q.tokens))
			return r.List(func() bool {
				id, ok := r.Integer()
				r.echo = append(r.echo, id)
				return ok
			})
		case "prompt_logprobs":
			return r.Null() || r.List(r.row)
		}
		return r.Value()
	})
}

// row reads the entries of one token: the token itself and the likeliest, in any order and each once.
func (r *vllmReader) row() bool {
	at := r.rows
	r.rows++
	if at < r.q.from || at >= len(r.q.tokens) {
		return r.Value()
	}
	row, own, others := at-r.q.from, false, 0
	ids, top := r.a.ids[row*r.q.top:(row+1)*r.q.top], r.a.top[row*r.q.top:(row+1)*r.q.top]
	ok := r.Object(func(key []byte) bool {
		id, err := strconv.ParseInt(string(key), 10, 32)
		x, ok := r.logprob()
		if err != nil || !ok {
			return false
		}
		if int32(id) == r.q.tokens[at] && !own {
			own, r.a.own[row] = true, x
			return true
		}
		if others < len(ids) {
			ids[others], top[others] = int32(id), x
		}
		others++
		return true
	})
	switch {
	case !ok:
	case !own:
		r.err = lied("token %d was sent as %d, and has no log-prob: it answers for other tokens", at, r.q.tokens[at])
	case others == len(ids)-1: // the token is among the likeliest
		ids[others], top[others] = r.q.tokens[at], r.a.own[row]
	case others != len(ids):
		r.err = lied("token %d has %d likely tokens, and %d were asked for", at, others, len(ids))
	}
	return ok && r.err == nil
}

// logprob reads what is said of one token.
func (r *vllmReader) logprob() (x float32, there bool) {
	ok := r.Object(func(key []byte) bool {
		if string(key) != "logprob" {
			return r.Value()
		}
		said, ok := r.Float(32)
		x, there = float32(said), ok
		return ok
	})
	return x, ok && there
}
