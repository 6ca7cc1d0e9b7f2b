package enginetest

import (
	"cmp"
	"fmt"
	"hash/fnv"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// Policy is a language model that can be computed by hand. A token and its log-prob are a function
// of the weights' name and of all tokens before. A token that was sampled twice, left out, or
// sampled by other weights than it is said to be changes everything after it.
type Policy struct {
	// Vocabulary is the number of token ids, at least 16. EOS ends a response; about one token in Length is it.
	Vocabulary int
	EOS        int32
	Length     int
}

// history stands for all tokens so far.
type history uint64

const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

func (h history) add(tokens ...int32) history {
	h = cmp.Or(h, fnvOffset)
	for _, token := range tokens {
		h = (h ^ history(uint32(token))) * fnvPrime
	}
	return h
}

// next is the token after a history, and its log-prob.
func (p Policy) next(weights string, h history) (int32, float32) {
	name := fnv.New64a()
	_, _ = name.Write([]byte(weights))
	x := uint64(h) ^ name.Sum64()
	x = (x ^ x>>31) * 0x9E3779B97F4A7C15
	x ^= x >> 29
	logprob := -float32(1+x>>40%4000) / 1000
	if x%uint64(p.Length) == 0 {
		return p.EOS, logprob
	}
	token := int32(x >> 8 % uint64(p.Vocabulary-1))
	if token >= p.EOS {
		token++
	}
	return token, logprob
}

// The model behind a Policy has 2 layers, each of which chooses 2 of 8 experts. ExpertsBytes is the size of a row, u8.
const (
	expertLayers = 2
	expertsTop   = 2
	expertsAll   = 8
	ExpertsBytes = expertLayers * expertsTop
)

// Experts is the row of the pass over the last of some tokens: layers × top-k ids, u8.
func (p Policy) Experts(weights string, tokens []int32) []byte {
	return experts(weights, history(0).add(tokens...))
}

// experts is the row of a pass after a history.
func experts(weights string, h history) []byte {
	name := fnv.New64a()
	_, _ = name.Write([]byte(weights))
	x := (uint64(h) ^ name.Sum64() ^ 0xE4) * 0x9E3779B97F4A7C15
	row := make([]byte, 0, ExpertsBytes)
	for layer := range expertLayers {
		first := x >> (20 + 12*layer) % expertsAll
		other := (first + 1 + x>>(26+12*layer)%(expertsAll-1)) % expertsAll
		row = append(row, byte(first), byte(other))
	}
	return row
}

// score is the log-prob of a given token after a history: the policy's own for the one that it
// samples, and less for any other.
func (p Policy) score(weights string, h history, token int32) float32 {
	sampled, logprob := p.next(weights, h)
	if token == sampled {
		return logprob
	}
	_, other := p.next(weights, h.add(token))
	return other - 5
}

// Check reports errors of a complete response to a prompt. Every token and log-prob must be those
// that the weights of its version make of the tokens before it. The response must end where it ends.
// The function name gives the name of a version's weights.
func (p Policy) Check(prompt []int32, maxTokens int, g port.Generation, name func(loop.Version) string) error {
	if len(g.Logprobs) != len(g.Tokens) || len(g.Versions) != len(g.Tokens) {
		return fmt.Errorf("%d tokens, %d log-probs, %d versions", len(g.Tokens), len(g.Logprobs), len(g.Versions))
	}
	h := history(0).add(prompt...)
	for i, token := range g.Tokens {
		want, logprob := p.next(name(g.Versions[i]), h)
		if token != want || g.Logprobs[i] != logprob {
			return fmt.Errorf("token %d of %d is %d at %v, said to be of version %d, which samples %d at %v", i, len(g.Tokens), token, g.Logprobs[i], g.Versions[i], want, logprob)
		}
		if token == p.EOS && i < len(g.Tokens)-1 {
			return fmt.Errorf("the response goes on for %d tokens behind its end", len(g.Tokens)-1-i)
		}
		h = h.add(token)
	}
	n := len(g.Tokens)
	switch {
	case g.Interrupted || g.Pruned:
		return nil
	case n == 0:
		return fmt.Errorf("a complete response without tokens")
	case n > maxTokens:
		return fmt.Errorf("%d tokens, more than the %d asked for", n, maxTokens)
	case g.Truncated != (g.Tokens[n-1] != p.EOS) || g.Truncated && n != maxTokens:
		return fmt.Errorf("truncated is %v after %d of %d tokens, of which the last is %d", g.Truncated, n, maxTokens, g.Tokens[n-1])
	}
	return nil
}
