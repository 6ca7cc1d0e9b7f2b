package scorer

import (
	"strconv"

	"github.com/headway-rl/headway/engine/upstream"
)

// sglang asks for the log-probs of an input by /generate, from the token before the first sampled one on: the server
// says none of the token that it begins with.
type sglang struct{}

func (sglang) call(q *question, _ string) upstream.Call {
	b := make([]byte, 0, 256+8*len(q.tokens))
	b = upstream.AppendTokens(append(b, `{"input_ids":`...), q.tokens)
	b = append(b, `,"sampling_params":{"max_new_tokens":0,"temperature":1},"stream":false,"return_logprob":true,"logprob_start_len":`...)
	b = strconv.AppendInt(b, int64(q.from-1), 10)
	b = append(b, `,"top_logprobs_num":`...)
	b = append(strconv.AppendInt(b, int64(q.top), 10), '}')
	return upstream.Call{Path: "/generate", Body: b}
}

func (sglang) read(body []byte, q *question, a *answer) error {
	r := sglangReader{Scanner: upstream.Scan(body), q: q, a: a, prompt: -1}
	ok := r.Object(func(key []byte) bool {
		if string(key) != "meta_info" {
			return r.Value()
		}
		return r.Object(r.meta)
	})
	want := q.rows() + 1
	switch {
	case r.err != nil:
		return r.err
	case !ok || !r.End():
		return lied("%w is not understood", upstream.Excerpt(body))
	case r.prompt >= 0 && r.prompt != len(q.tokens):
		return lied("it has read %d prompt_tokens of %d that were sent", r.prompt, len(q.tokens))
	case r.rows != want || q.top > 0 && r.tops != want:
		return lied("%d input_token_logprobs and %d input_top_logprobs from token %d of %d on, want %d", r.rows, r.tops, q.from-1, len(q.tokens), want)
	}
	return nil
}

// sglangReader reads one answer.
type sglangReader struct {
	upstream.Scanner
	q                  *question
	a                  *answer
	prompt, rows, tops int
	err                error
}

func (r *sglangReader) meta(key []byte) bool {
	switch string(key) {
	case "prompt_tokens":
		n, ok := r.Integer()
		r.prompt = int(n)
		return ok
	case "input_token_logprobs":
		return r.List(func() bool { r.rows++; return r.own(r.rows - 2) })
	case "input_top_logprobs":
		return r.Null() || r.List(func() bool { r.tops++; return r.likeliest(r.tops - 2) })
	}
	return r.Value()
}

// own reads the log-prob of the token of a row; row -1 is of the token that the answer begins with.
func (r *sglangReader) own(row int) bool {
	if row < 0 || row >= len(r.a.own) {
		return r.Value()
	}
	x, id, ok := r.entry()
	if want := r.q.tokens[r.q.from+row]; ok && id != want && !(id == 0 && r.last(want)) {
		r.err = lied("token %d was sent as %d, and is %d in input_token_logprobs: it answers for other tokens", r.q.from+row, want, id)
		return false
	}
	r.a.own[row] = x
	return ok
}

// last reports whether a token may be the last of the server's vocabulary, which it says as 0.
func (r *sglangReader) last(id int32) bool {
	return r.q.vocabulary == 0 || int(id) == r.q.vocabulary-1
}

// likeliest reads the likeliest tokens of a row.
func (r *sglangReader) likeliest(row int) bool {
	if row < 0 || row >= len(r.a.own) {
		return r.Value()
	}
	n, at := 0, row*r.q.top
	ok := r.List(func() bool {
		x, id, ok := r.entry()
		if ok && n < r.q.top {
			r.a.ids[at+n], r.a.top[at+n] = id, x
		}
		n++
		return ok
	})
	if ok && n != r.q.top {
		r.err = lied("token %d has %d likely tokens, and %d were asked for", r.q.from+row, n, r.q.top)
	}
	return ok && r.err == nil
}

// entry reads a list of a log-prob, an id and a text. A log-prob of null is not a number, or −inf: the server's JSON has
// neither.
func (r *sglangReader) entry() (x float32, id int32, ok bool) {
	n := 0
	ok = r.List(func() bool {
		n++
		switch n {
		case 1:
			if r.Null() {
				r.err = lied("a token has no log-prob: the teacher gives it none, or one that is not a number")
				return false
			}
			said, ok := r.Float(32)
			x = float32(said)
			return ok
		case 2:
			var ok bool
			id, ok = r.Integer()
			return ok
		}
		return r.Value()
	})
	return x, id, ok && n >= 2
}
