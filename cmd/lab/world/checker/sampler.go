package checker

import (
	"fmt"
	"iter"
)

// Sampler is the policy that the world's engines sample by: a token is a function of the weights' name and of all tokens
// before.
type Sampler struct {
	// Vocabulary is the number of token ids. EOS ends a response; about one token in Length is it.
	Vocabulary int
	EOS        int32
	Length     int
	// Start is the name of the weights that an engine starts with, which stand for version 0.
	Start string
	// TokenNS is how long a token takes at least, in nanoseconds.
	TokenNS int64
	// Rows: engines say rows, and there is room for all of them.
	Rows bool
}

const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

// name is the hash of the name of a version's weights.
func nameHash(name string) uint64 {
	h := uint64(fnvOffset)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * fnvPrime
	}
	return h
}

// before is the hash of the tokens so far; 0 for none.
type before uint64

func (h before) and(token int32) before {
	if h == 0 {
		h = fnvOffset
	}
	return (h ^ before(uint32(token))) * fnvPrime
}

// next is the token after those before, and its log-prob, under weights whose name has a hash.
func (s *Sampler) next(weights uint64, h before) (int32, float32) {
	x := uint64(h) ^ weights
	x = (x ^ (x >> 31)) * 0x9E3779B97F4A7C15
	x ^= x >> 29
	logprob := -float32(1+(x>>40)%4000) / 1000
	if x%uint64(s.Length) == 0 {
		return s.EOS, logprob
	}
	token := int32((x >> 8) % uint64(s.Vocabulary-1))
	if token >= s.EOS {
		token++
	}
	return token, logprob
}

// names keeps the hashes of versions' names.
type names struct {
	start    uint64
	versions map[int32]uint64
	copies   map[int32]int32 // versions that a trainer went back to, by the version that has the same weights
}

func (c *check) newNames() names {
	return names{nameHash(c.sampler.Start), map[int32]uint64{}, c.copies()}
}

// all are the names that a version's weights may have, the one under which it was published first.
func (n *names) all(version int32) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		for v, is := version, true; is; v, is = n.copies[v] {
			if !yield(n.of(v)) || v == 0 && !yield(n.start) {
				return
			}
		}
	}
}

func (n *names) of(version int32) uint64 {
	h, ok := n.versions[version]
	if !ok {
		h = nameHash(fmt.Sprintf("v%06d", version))
		n.versions[version] = h
	}
	return h
}
