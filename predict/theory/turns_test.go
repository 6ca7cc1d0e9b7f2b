package theory

import (
	"math"
	"testing"
)

// The best step is bound by the trainer, or by the slots that a tail leaves; the worst keeps all the work.
func TestTurnsApart(t *testing.T) {
	for _, c := range []struct {
		turns Turns
		want  Apart
	}{
		{Turns{StepS: 100, GenerateS: 50, TrainS: 30, LogProbsS: 10, SyncS: 5, BusyShare: 0.5}, Apart{LowS: 30, HighS: 95, RolloutLow: 25. / 60, RolloutHigh: 50. / 95}},
		{Turns{StepS: 100, GenerateS: 80, TrainS: 20, BusyShare: 0.75}, Apart{LowS: 60, HighS: 100, RolloutLow: 0.75, RolloutHigh: 0.8}},
		{Turns{StepS: 100, GenerateS: 80, TrainS: 20}, Apart{LowS: 80, HighS: 100, RolloutLow: 0.8, RolloutHigh: 0.8}},
		{Turns{StepS: 100, GenerateS: 50, TrainS: 30, LogProbsS: 20}, Apart{LowS: 50, HighS: 100, RolloutLow: 0.5, RolloutHigh: 0.625}},
	} {
		if err := c.turns.Validate(); err != nil {
			t.Error(err)
		}
		got := c.turns.Apart()
		for _, v := range [][2]float64{{got.LowS, c.want.LowS}, {got.HighS, c.want.HighS}, {got.RolloutLow, c.want.RolloutLow}, {got.RolloutHigh, c.want.RolloutHigh}} {
			if math.Abs(v[0]-v[1]) > 1e-9 {
				t.Errorf("%+v: %+v, want %+v", c.turns, got, c.want)
			}
		}
	}
	for _, bad := range []Turns{{}, {StepS: 10, GenerateS: 8, TrainS: 8}, {StepS: 10, GenerateS: 5, TrainS: 3, BusyShare: 2}, {StepS: math.NaN(), GenerateS: 5, TrainS: 3}} {
		if bad.Validate() == nil {
			t.Errorf("%+v is taken for parts of a step", bad)
		}
	}
}
