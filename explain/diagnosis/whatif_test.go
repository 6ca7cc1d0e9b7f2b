package diagnosis

import (
	"testing"

	"github.com/headway-rl/headway/observe/estimate"
)

// No change lowers staleness by more than all of it, however wide the interval of a few steps is.
func TestAGainIsAtMostAll(t *testing.T) {
	base := arm{staleness: estimate.Interval{Mean: 2, Half: 0.4, Batches: 8}, period: estimate.Interval{Mean: 1}}
	after := arm{staleness: estimate.Interval{Mean: 0.09, Half: 0.02, Batches: 8}, period: estimate.Interval{Mean: 1}, stalenessHalf: 0.2}
	f := &facts{staleness: known(2), again: &resimulator{base: base}, model: &model{base: base}}
	var again, modelled outcome
	again.resimulated(f, after)
	modelled.simulated(f, arm{staleness: estimate.Interval{Mean: 0.09, Half: 3, Batches: 8}, period: estimate.Interval{Mean: 1}})
	for _, o := range []outcome{again, modelled} {
		if o.GainHigh != 1 || o.GainLow >= o.Gain {
			t.Errorf("%s: %g, from %g to %g", o.Method, o.Gain, o.GainLow, o.GainHigh)
		}
	}
}
