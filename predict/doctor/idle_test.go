package doctor

import (
	"testing"

	"github.com/headway-rl/headway/loop"
)

// A trainer that a simulation shows waiting is never called the bottleneck, and
// one that idles is explained.
func TestTrainBoundAgreesWithSimulation(t *testing.T) {
	bound, idle := 0, 0
	for _, preset := range []string{"openrlhf", "one-step-off", "verl-fully-async", "nemo-windowed", "areal", "skyrl", "slime", "prime-rl"} {
		for _, rho := range []string{"1.1", "1.5"} {
			c := caseOf(t, lengths, "preset="+preset, "modelled.train.utilization="+rho)
			findings := findingsOf(t, c)
			f, called := find(findings, "train-bound")
			_, waits := find(findings, "trainer-idle")
			p := run(t, c, 50, 600)
			share := p.result.Summary.TrainerIdleRatio
			if called && f.Basis == Simulated {
				bound++
				if share > 0.08 || waits {
					t.Errorf("%s at %s: train-bound, and idle in %.2f of a longer simulation (found trainer-idle: %v)", preset, rho, share, waits)
				}
			}
			if share > 0.33 && !waits {
				t.Errorf("%s at %s: idle in %.2f, and nothing is found", preset, rho, share)
			}
			if waits {
				idle++
			}
		}
	}
	if bound == 0 || idle == 0 {
		t.Errorf("%d called train-bound, %d idle", bound, idle)
	}
}

// No group is used more often than max_uses, whatever the window, and as many
// groups end as docs/reference/doctor.md says.
func TestReplayUsesOfEndedGroups(t *testing.T) {
	c := caseOf(t, lengths, "modelled.train.utilization=0.1", "queue={policy: replay, capacity: 512, max_uses: 4}")
	f, ok := find(findingsOf(t, c), "replay-staleness")
	if !ok || f.Groups < probeGroups {
		t.Fatalf("of %d groups: %+v", f.Groups, f)
	}
	if uses := figure(t, f, "uses_per_group"); uses > 4 || uses < 3.9 {
		t.Errorf("%g uses of a group, max_uses is 4", uses)
	}
}

// A standstill is about the key for which most groups ended, and about the policy
// where none did.
func TestStallCause(t *testing.T) {
	for _, test := range []struct {
		ending map[loop.Reason]int64
		key    string
	}{
		{nil, keyPolicy},
		{map[loop.Reason]int64{loop.ReasonStale: 3, loop.ReasonPruned: 2}, keyBudget},
		{map[loop.Reason]int64{loop.ReasonStale: 3, loop.ReasonPruned: 4}, keyPrune},
		{map[loop.Reason]int64{loop.ReasonSolveRate: 1}, keyBand},
	} {
		p := probe{ending: test.ending}
		if key, do := p.stallCause(); key != test.key || do == "" {
			t.Errorf("%v: %s, %q, want %s", test.ending, key, do, test.key)
		}
	}
}
