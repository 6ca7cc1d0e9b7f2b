package plan

import (
	"strings"
	"testing"
)

// As many seeds as there are pairs aim at each of them once.
func TestAimed(t *testing.T) {
	pairs := map[string]bool{}
	for seed := uint64(aimedFrom + 7); seed < aimedFrom+7+pairCount(); seed++ {
		p := Draw(seed)
		if err := p.Check(); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		found := map[string]int{}
		for _, f := range p.Faults {
			found[f.Await.Asks+"/"+f.Kind+" "+strings.TrimRight(f.Host, "0123456789")]++
		}
		at := aims[(seed-aimedFrom)%pairCount()]
		pair := at.call.call + "/" + at.blow.kind + " " + at.blow.role
		if pairs[pair] = true; found[pair] < 3 {
			t.Errorf("seed %d aims at %s, and draws %v", seed, pair, found)
		}
	}
	if n := uint64(len(pairs)); n != pairCount() {
		t.Errorf("%d pairs, want %d", n, pairCount())
	}
}
