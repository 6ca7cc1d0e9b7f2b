package scorer

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/loop/port"
)

// question are the tokens of one sequence, up to the last that the policy sampled.
type question struct {
	tokens []int32
	mask   []uint8
	// from is the first sampled token. top is how many of the likeliest tokens are asked for at each.
	from, top int
	// vocabulary is the number of the policy's token ids, 0 for unknown.
	vocabulary int
}

// ask makes the question of a sequence; false where the policy sampled nothing of it.
func ask(tokens []int32, mask []uint8, top, vocabulary int) (*question, bool) {
	from := slices.Index(mask, 1)
	if from < 0 {
		return nil, false
	}
	end := len(mask)
	for mask[end-1] != 1 {
		end--
	}
	return &question{tokens[:end], mask[:end], from, top, vocabulary}, true
}

// rows is how many tokens are answered for: those from the first sampled one on.
func (q *question) rows() int { return len(q.tokens) - q.from }

// bytesMax bounds an answer: servers say an id, a log-prob, a rank and a text of every token, and vLLM does so of the
// prompt too.
func (q *question) bytesMax() int64 {
	const entry, rest = 256, 1 << 20
	return int64(len(q.tokens))*int64(q.top+2)*entry + rest
}

// readAll reads a body that is at most so long.
func readAll(body io.Reader, most int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(body, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("%w: it is above %d bytes", upstream.ErrLied, most)
	}
	return text, err
}

// answer has, for every row of a question, the log-prob of the token itself and the likeliest tokens, in any order.
type answer struct {
	own []float32
	ids []int32
	top []float32
}

// newAnswer has room for the rows of a question.
func newAnswer(q *question) answer {
	n := q.rows()
	return answer{make([]float32, n), make([]int32, n*q.top), make([]float32, n*q.top)}
}

// lied is the error of an answer that cannot be.
func lied(format string, args ...any) error {
	return fmt.Errorf("%w: %w", upstream.ErrLied, fmt.Errorf(format, args...))
}

// logprobMost is above 0 by what rounding may add, probabilityMost above 1 by what it may add to the sum of many.
const (
	logprobMost     = 1e-3
	probabilityMost = 1.05
)

// check refuses numbers that are no log-probs, and tokens that are none or stand twice, and puts the likeliest first.
func (a *answer) check(q *question) error {
	seen := make([]int32, q.top)
	for row, own := range a.own {
		token := q.from + row
		ids, top := a.ids[row*q.top:(row+1)*q.top], a.top[row*q.top:(row+1)*q.top]
		sum, beside := 0.0, math.Exp(float64(own))
		for i, x := range append(top[:len(top):len(top)], own) {
			if x == upstream.LogprobMissing {
				return lied("token %d, or one of its likeliest, has no log-prob: the teacher gives it none, or one that is not a number", token)
			}
			if y := float64(x); math.IsNaN(y) || math.IsInf(y, 0) || y > logprobMost {
				return lied("token %d has the log-prob %g: want a finite number of at most 0 (a server started with --logprobs-mode raw_logits says others)", token, x)
			}
			if i < len(ids) {
				sum += math.Exp(float64(x))
				if ids[i] == q.tokens[token] {
					beside = 0
				}
				if ids[i] < 0 || q.vocabulary > 0 && int(ids[i]) >= q.vocabulary {
					return lied("token %d has the likely token %d, and the policy has the ids below %d: the teacher has another vocabulary", token, ids[i], q.vocabulary)
				}
			}
		}
		if sum+beside > probabilityMost {
			return lied("the likeliest of token %d have a probability of %.3g together: what it calls log-probs are none (--logprobs-mode raw_logprobs)", token, sum+beside)
		}
		copy(seen, ids)
		slices.Sort(seen)
		if len(slices.Compact(seen)) != len(ids) {
			return lied("the likeliest of token %d are %d times the same", token, len(ids))
		}
		sortLikeliest(ids, top)
	}
	return nil
}

// sortLikeliest sorts by log-prob, the highest first. Servers mostly say them so: insertion then looks at each once.
func sortLikeliest(ids []int32, top []float32) {
	for i := 1; i < len(top); i++ {
		for k := i; k > 0 && top[k] > top[k-1]; k-- {
			top[k], top[k-1] = top[k-1], top[k]
			ids[k], ids[k-1] = ids[k-1], ids[k]
		}
	}
}

// scores are the channels of one sequence: a row for each sampled token.
func (a *answer) scores(name string, q *question, sequence int32) []port.Scores {
	ids, logprobs := headers(name, q.top)
	said := port.Scores{Header: *logprobs, Sequence: sequence}
	tokens := port.Scores{Sequence: sequence}
	n := 0
	for row := range a.own {
		n += int(q.mask[q.from+row])
	}
	said.Data = make([]byte, 0, 4*n*(q.top+1))
	if ids != nil {
		tokens.Header, tokens.Data = *ids, make([]byte, 0, 4*n*(q.top+1))
	}
	for row, own := range a.own {
		if q.mask[q.from+row] != 1 {
			continue
		}
		said.Data = binary.LittleEndian.AppendUint32(said.Data, math.Float32bits(own))
		for _, x := range a.top[row*q.top : (row+1)*q.top] {
			said.Data = binary.LittleEndian.AppendUint32(said.Data, math.Float32bits(x))
		}
		if ids == nil {
			continue
		}
		tokens.Data = binary.LittleEndian.AppendUint32(tokens.Data, uint32(q.tokens[q.from+row]))
		for _, id := range a.ids[row*q.top : (row+1)*q.top] {
			tokens.Data = binary.LittleEndian.AppendUint32(tokens.Data, uint32(id))
		}
	}
	if ids == nil {
		return []port.Scores{said}
	}
	return []port.Scores{tokens, said}
}
