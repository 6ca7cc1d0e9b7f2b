package workload

import (
	"math"
	"testing"
)

// rolloutOf is a recorded rollout whose turns generate so many tokens.
func rolloutOf(tokens ...int32) []RecordedTurn {
	turns := make([]RecordedTurn, len(tokens))
	for i, n := range tokens {
		turns[i].Tokens = n
	}
	return turns
}

// Siblings play one recorded prompt, every rollout of it before one comes twice, and a prompt that is played again plays
// the same.
func TestRecordedSiblings(t *testing.T) {
	r, err := NewRecorded([][][]RecordedTurn{{rolloutOf(1), rolloutOf(2, 3), rolloutOf(4)}, {rolloutOf(10), rolloutOf(20), rolloutOf(30)}})
	if err != nil {
		t.Fatal(err)
	}
	if r.Rollouts() != 6 || math.Abs(r.Lengths().Mean()-70./6) > 1e-9 {
		t.Errorf("%d rollouts of %g tokens", r.Rollouts(), r.Lengths().Mean())
	}
	src := NewSource(1, StreamLength)
	counts := map[int]int{}
	for group := range uint64(3000) {
		sum := 0
		for sample := range uint32(3) {
			turns := r.Draw(src, group, group, sample, 1)
			if &turns[0] != &r.Draw(src, group, group, sample, 1)[0] {
				t.Fatal("the same attempt plays another rollout")
			}
			sum += RecordedTokens(turns)
			counts[RecordedTokens(turns)]++
		}
		if sum != 10 && sum != 60 {
			t.Fatalf("group %d: siblings generate %d tokens, want one prompt's 10 or 60", group, sum)
		}
	}
	for tokens, n := range counts {
		if math.Abs(float64(n)-1500) > 5*math.Sqrt(1500) {
			t.Errorf("the rollout of %d tokens is played %d times of 9000", tokens, n)
		}
	}
}

// Where no two are of one prompt, every sample draws for itself.
func TestRecordedApart(t *testing.T) {
	r, err := NewRecorded([][][]RecordedTurn{{rolloutOf(1)}, {rolloutOf(2)}})
	if err != nil {
		t.Fatal(err)
	}
	src, equal, ones := NewSource(1, StreamLength), 0, 0
	for group := range uint64(2000) {
		a, b := RecordedTokens(r.Draw(src, group, group, 0, 1)), RecordedTokens(r.Draw(src, group, group, 1, 1))
		if a == b {
			equal++
		}
		ones += 2 - a
	}
	if equal < 900 || equal > 1100 || ones < 900 || ones > 1100 {
		t.Errorf("of 2000 pairs %d are equal and %d begin with the first rollout, want about half", equal, ones)
	}
}

func TestRecordedRefuses(t *testing.T) {
	for _, prompts := range [][][][]RecordedTurn{nil, {{}}, {{rolloutOf(1), nil}}, {{rolloutOf(math.MaxInt32, 1)}}} {
		if _, err := NewRecorded(prompts); err == nil {
			t.Errorf("%v compiled", prompts)
		}
	}
}
