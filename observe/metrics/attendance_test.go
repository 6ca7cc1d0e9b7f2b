package metrics_test

import (
	"math"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/metrics"
)

// asking is a trainer that asks for its batches, of one group each, by the events of a loop.
type asking struct {
	r      *metrics.Recorder
	starts loop.LeaseID
}

func newAsking() *asking {
	cfg := loop.Config{GroupSize: 1, BatchGroups: 1, EngineSlots: []int{1}, QueueGroups: 1, TrainerAsks: true}
	return &asking{r: metrics.NewRecorder(cfg)}
}

func (a *asking) at(s float64, kind loop.EventKind, actions ...loop.Action) {
	ev := loop.Event{Time: int64(s * 1e9), Kind: kind, Lease: a.starts, Attempt: 1, Version: a.r.Version() + 1}
	a.r.Observe(ev, metrics.Measured{}, actions)
}

// leased gives it a batch.
func (a *asking) leased(s float64) {
	a.starts++
	a.at(s, loop.Tick, loop.Action{Kind: loop.StartRollout, Group: loop.GroupID(a.starts), Attempt: 1}, loop.Action{Kind: loop.StartTrainStep, Lease: a.starts, Attempt: 1})
}

func (a *asking) ends(s float64) {
	v := a.r.Version()
	a.at(s, loop.TrainStepEnded, loop.Action{Kind: loop.GroupTrained, Group: loop.GroupID(a.starts), Count: 1, Version: v, ReadyVersion: v, StartVersion: v})
}

// step asks at a time, trains for a second after another of waiting.
func (a *asking) step(s float64) {
	a.at(s, loop.TrainerReady)
	a.leased(s + 1)
	a.ends(s + 2)
}

func (a *asking) newest(t *testing.T, what string, periodS, trainS, idleS, absentS float64) {
	t.Helper()
	p := a.r.Steps[len(a.r.Steps)-1]
	got := [4]float64{float64(p.PeriodNS) / 1e9, float64(p.TrainNS) / 1e9, p.TrainerIdle * float64(p.PeriodNS) / 1e9, float64(p.AbsentNS) / 1e9}
	for i, want := range [4]float64{periodS, trainS, idleS, absentS} {
		if math.Abs(got[i]-want) > 1e-9 {
			t.Errorf("%s: period, training, idle and absence of %v s, want %v", what, got, [4]float64{periodS, trainS, idleS, absentS})
			return
		}
	}
}

// A trainer that is not there neither trains nor waits: before it first asks, after it took a batch of which nothing
// came, after a restart of the run and after a step where it stays away for long. What it does of its own between two
// steps is part of how it trains.
func TestAnAbsentTrainerNeitherTrainsNorWaits(t *testing.T) {
	a := newAsking()
	a.step(50)
	a.newest(t, "before it first asks", 52, 1, 1, 50)
	for s := 52.5; s < 60; s += 2.5 { // half a second of its own
		a.step(s)
	}
	a.newest(t, "something of its own", 2.5, 1.5, 1, 0)
	a.step(63.5) // 4 s of its own, under four periods of 2.5 s
	a.newest(t, "longer at something of its own", 6, 5, 1, 0)
	a.at(66, loop.TrainerReady)
	a.leased(69)
	a.at(100, loop.LeaseReturned) // it was killed
	a.at(120, loop.TrainerReady)
	a.leased(120)
	a.ends(121)
	a.newest(t, "nothing came of a batch", 55.5, 1.5, 3, 51)
	a.step(200) // 79 s after its last step
	a.newest(t, "away after a step", 81, 1, 1, 79)
	a.at(203, loop.TrainerReady)
	a.at(204, loop.Recovered)
	a.at(205, loop.TrainerReady)
	a.leased(206)
	a.ends(208)
	a.newest(t, "the run starts anew", 6, 3, 2, 1)
	s := a.r.Summary()
	if want := (50.0 + 51 + 79 + 1) / 208; math.Abs(s.TrainerAbsentRatio-want) > 1e-9 {
		t.Errorf("absent for %v of the time, want %v", s.TrainerAbsentRatio, want)
	}
	a.at(308, loop.Tick) // and now it is away
	if got := a.r.Summary().TrainerAbsentRatio; math.Abs(got-(181.0+100)/308) > 1e-9 {
		t.Errorf("absent for %v of the time while it lasts", got)
	}
	if s.StepS.Mean != a.r.Summary().StepS.Mean || s.StepS.Mean > 2 {
		t.Errorf("a step takes %v s, then %v", s.StepS.Mean, a.r.Summary().StepS.Mean)
	}
}

// What binds is said of the time in which there is a trainer.
func TestAnAbsentTrainerBindsNothing(t *testing.T) {
	a := newAsking()
	for s := 1000.0; s < 1100; s += 2 {
		a.step(s) // half of it waiting
	}
	if got := a.r.Summary().Throughput.Binding; got == "train" {
		t.Errorf("%q binds a trainer that waits for half of its time and was absent before", got)
	}
}
