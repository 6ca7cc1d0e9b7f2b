package checker

import "testing"

// The last notices before a recovery may be missing in the log, and a trained rollout may not.
func TestLedgerAfterARecovery(t *testing.T) {
	own := sums{Admitted: 12, InFlight: 2, Waiting: 4, Trained: 2, Evicted: 2, Failed: 2}
	for _, c := range []struct {
		told sums
		want bool
	}{
		{own, true},
		{sums{Admitted: 12, InFlight: 2, Waiting: 2, Trained: 2, Evicted: 4, Failed: 2}, true},
		{sums{Admitted: 13, InFlight: 2, Waiting: 4, Trained: 2, Evicted: 2, Failed: 3}, true},
		{sums{Admitted: 12, InFlight: 2, Waiting: 4, Trained: 2, Evicted: 2, Cancelled: 1, Failed: 1}, true},
		{sums{Admitted: 12, InFlight: 2, Waiting: 5, Trained: 2, Evicted: 2, Failed: 1}, false},
		{sums{Admitted: 12, InFlight: 2, Waiting: 2, Trained: 4, Evicted: 2, Failed: 2}, false},
		{sums{Admitted: 12, InFlight: 2, Waiting: 6, Trained: 2, Failed: 2}, false},
		{sums{Admitted: 11, InFlight: 1, Waiting: 4, Trained: 2, Evicted: 2, Failed: 2}, false},
	} {
		if got := c.told.after(own); got != c.want {
			t.Errorf("%+v after %+v: %v, want %v", c.told, own, got, c.want)
		}
	}
}

// A recovery may have lost the line that aborted a superfluous rollout: the log then says that its score counts for nothing.
func TestDiscardedScoreOfAFullGroup(t *testing.T) {
	for full, want := range map[bool]string{true: cancelled, false: scored} {
		id := attemptID{1, 2, 1}
		a := &attempt{id: id, state: running}
		l := &ledger{c: &check{}, attempts: map[attemptID]*attempt{id: a}, slots: map[int64]*attempt{0: a}, groups: map[int64]*group{1: {}},
			unwanted: map[int64]bool{7: true}, versions: []made{{}}, rules: rules{GroupSize: 2}}
		if full {
			l.groups[1].scored = 2
		}
		l.scored(&entry{n: 7, group: 1, sample: 2, attempt: 1})
		if a.state != want {
			t.Errorf("a full group %v: %s, want %s", full, a.state, want)
		}
	}
}
