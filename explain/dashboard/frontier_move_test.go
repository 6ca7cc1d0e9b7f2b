package dashboard

import "testing"

// A move's figures stand on the same scales as those of the point that it starts from.
func TestMovesStartWhereTheRunStands(t *testing.T) {
	here := &FrontierPoint{StalenessMean: 1.3, PeriodRatio: 1.7}
	ratios := &FrontierMove{Change: "concurrency 128 → 64", StalenessMean: 0.5, PeriodRatio: 1.2}
	if to := ratios.from(here); to.StalenessMean != 0.65 || to.PeriodRatio != 1.2*1.7 || to.Change != ratios.Change {
		t.Errorf("it leads to %+v", to)
	}
	var none *FrontierMove
	if none.from(here) != nil || ratios.from(nil) != nil {
		t.Error("a move from nowhere leads somewhere")
	}
}
