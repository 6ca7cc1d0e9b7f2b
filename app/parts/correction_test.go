package parts

import (
	"github.com/headway-rl/headway/config"
	"testing"
)

// What the config accepts as a correction, the trainer accepts too.
func TestCorrectionsAreTheTrainers(t *testing.T) {
	for _, text := range []string{
		"kind: ppo-clip", "kind: none, max_spans: 2", "kind: cispo, epsilon_low: 1, epsilon_high: 4",
		"kind: decoupled-ppo", "kind: decoupled-ppo, cap: 3, drop_over_cap: true, floor: 0.1",
		"kind: tis", "kind: tis, level: sequence", "kind: tis, level: geometric, cap: 5, floor: 0.5", "kind: tis, drop_over_cap: true", "kind: tis, floor: 1.9",
		"kind: decoupled-ppo, cap: 5, drop_over_cap: true, floor: 0.5, drop_under_floor: true",
		"kind: dppo", "kind: dppo, difference_low: 0.1, difference_high: 1, penalty: 0.001", "kind: dppo, version_mask: newest",
		"kind: token-mask", "kind: token-mask, low: 0.01, high: 1.01", "kind: token-mask, version_mask: newest",
		"kind: sequence-mask", "kind: sequence-mask, metric: kl", "kind: sequence-mask, metric: kl, max_kl: 3, negative_only: true",
		"kind: sequence-mask, low: 0.9, version_mask: training, version_lag: 3", "metric: geometric, kind: sequence-mask",
	} {
		c, err := config.Load("", "trainer.correction={"+text+"}")
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if err := correction(c.Trainer.Correction).Validate(); err != nil {
			t.Errorf("%s: the config accepts what the trainer does not: %v", text, err)
		}
	}
}
