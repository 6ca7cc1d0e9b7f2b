package plan

import "testing"

// Every call is waited for by several kinds of faults, and every kind of fault waits for a call.
func TestPairs(t *testing.T) {
	calls, kinds := map[string]map[string]bool{}, map[string]bool{}
	for seed := range uint64(3000) {
		for _, f := range Draw(seed).Faults {
			if calls[f.Await.Asks] == nil {
				calls[f.Await.Asks] = map[string]bool{}
			}
			calls[f.Await.Asks][f.Kind] = true
			kinds[f.Kind] = kinds[f.Kind] || f.Await.Asks != ""
		}
	}
	for _, m := range called {
		if n := len(calls[m.call]); n < 10 {
			t.Errorf("%s is met by %d kinds of faults", m.call, n)
		}
	}
	for _, s := range struck {
		if !kinds[s.kind] {
			t.Errorf("%s waits for no call", s.kind)
		}
	}
}

// A world counts by its plan: no story takes too many faults away.
func TestStoriesCount(t *testing.T) {
	for seed := range uint64(3000) {
		p, kinds := Draw(seed), map[string]bool{}
		for _, f := range p.Faults {
			kinds[f.Kind] = true
		}
		if len(p.Faults) < FaultsCounted || len(kinds) < KindsCounted {
			t.Errorf("seed %d has %d faults of %d kinds", seed, len(p.Faults), len(kinds))
		}
	}
}
