package diagnosis_test

import (
	"bytes"
	"container/heap"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/explain/diagnosis"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
)

// rig drives a loop with what goes wrong, and keeps the trace: rollouts of 1 to 3 s, train steps of stepS.
type rig struct {
	stepS  float64
	untilS float64
	// asks says how long the trainer takes to ask again after a version; fails says whether its batch comes back instead.
	asks  func(made loop.Version) float64
	fails func(made loop.Version, nowS float64) (afterS float64, comesBack bool)
	// loads says how long an engine loads a version, stands until when a rollout that would end then does.
	loads  func(engine int32, v loop.Version) float64
	stands func(endsS float64) (untilS, environmentS float64)
	// recovers is when the run's process ends, to be there again 50 s later; 0 for never.
	recovers float64
	// crashes has the first attempt of every so many-th train step fail; 0 of none.
	crashes loop.Version
	// slow is how many times as long engine 1 takes for a rollout, 0 for once.
	slow float64
	// loses and back say when engine 1 goes and is there again.
	loses, back []float64

	now    int64
	events due
	rng    *rand.Rand
	out    *trace.Writer
	loop   *loop.Loop
	ended  bool
}

type due []trace.Event

func (d due) Len() int           { return len(d) }
func (d due) Less(i, j int) bool { return d[i].Event.Before(d[j].Event) }
func (d due) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }
func (d *due) Push(x any)        { *d = append(*d, x.(trace.Event)) }
func (d *due) Pop() any {
	last := (*d)[len(*d)-1]
	*d = (*d)[:len(*d)-1]
	return last
}

func (r *rig) after(s float64, ev loop.Event) {
	ev.Time = r.now + int64(s*1e9)
	heap.Push(&r.events, trace.Event{Event: ev})
}

// judged is what closed forms say of the trace.
func (r *rig) judged(t *testing.T, keys ...string) diagnosis.Report {
	t.Helper()
	report, err := judged(t, r.trace(t, keys...), diagnosis.Options{ClosedForms: true})
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// trace of a remote trainer's run: 32 slots on two engines, groups of 4, batches of 16.
func (r *rig) trace(t *testing.T, keys ...string) []byte {
	t.Helper()
	document, err := config.Load("", append([]string{"rollout.group_size=4", "train.batch=16", "trainer.kind=remote",
		"engines.0.name=a", "engines.0.slots=16", "engines.1.name=b", "engines.1.slots=16", "rollout.concurrency=32", "queue.policy=drop"}, keys...)...)
	if err != nil {
		t.Fatal(err)
	}
	rules := document.LoopConfig()
	rules.TrainerAsks = true
	var text bytes.Buffer
	if r.out, err = trace.NewWriter(&text, trace.Header{Program: "headway test", Source: "live", Loop: rules, Config: string(document.YAML()), Warmup: 20}); err != nil {
		t.Fatal(err)
	}
	if r.loop, err = loop.New(rules); err != nil {
		t.Fatal(err)
	}
	r.rng = rand.New(rand.NewPCG(1, 2))
	r.after(0, loop.Event{Kind: loop.RunStarted})
	r.after(0, loop.Event{Kind: loop.TrainerReady})
	if r.recovers > 0 {
		r.after(r.recovers+50, loop.Event{Kind: loop.Recovered})
		r.after(r.recovers+51, loop.Event{Kind: loop.TrainerReady})
	}
	for i := range r.loses {
		r.after(r.loses[i], loop.Event{Kind: loop.EngineLost, Engine: 1})
		r.after(r.back[i], loop.Event{Kind: loop.EngineJoined, Engine: 1})
	}
	for len(r.events) > 0 && r.events[0].Time <= int64(r.untilS*1e9) && !r.ended {
		ev := heap.Pop(&r.events).(trace.Event)
		if down := int64(r.recovers * 1e9); r.recovers > 0 && ev.Time >= down && ev.Time < down+50e9 {
			continue // nobody was there to take it
		}
		r.now = ev.Time
		r.step(ev)
	}
	if err := r.out.End(nil); err != nil {
		t.Fatal(err)
	}
	return text.Bytes()
}

func (r *rig) step(ev trace.Event) {
	actions, tick := r.loop.Step(ev.Event)
	actions = slices.Clone(actions)
	if tick > r.now {
		heap.Push(&r.events, trace.Event{Event: loop.Event{Time: tick, Kind: loop.Tick}})
	}
	r.out.Event(ev, actions)
	switch {
	case ev.Kind == loop.TrainStepEnded && r.asks != nil:
		r.after(r.asks(ev.Version), loop.Event{Kind: loop.TrainerReady})
	case ev.Kind == loop.TrainStepEnded:
		r.after(0, loop.Event{Kind: loop.TrainerReady})
	}
	for _, a := range actions {
		r.act(a)
	}
}

func (r *rig) act(a loop.Action) {
	switch a.Kind {
	case loop.StartRollout, loop.ResumeRollout:
		r.rollout(a)
	case loop.AbortRollout:
		if a.Slot >= 0 {
			r.after(0, loop.Event{Kind: loop.RolloutAborted, Slot: a.Slot, Group: a.Group, Sample: a.Sample, Attempt: a.Attempt})
		}
	case loop.StartTrainStep:
		r.train(a)
	case loop.LoadWeights:
		s := 0.01
		if r.loads != nil {
			s = r.loads(a.Engine, a.Version)
		}
		r.after(s, loop.Event{Kind: loop.WeightsLoaded, Engine: a.Engine, Version: a.Version, Attempt: a.Attempt})
	case loop.SwitchWeights:
		r.after(0.01, loop.Event{Kind: loop.WeightsSwitched, Engine: a.Engine, Version: a.Version, Attempt: a.Attempt})
	case loop.FinishRun:
		r.ended = true
	}
}

func (r *rig) rollout(a loop.Action) {
	took := 1 + 2*r.rng.Float64()
	tokens := int32(took * 50)
	if a.Engine == 1 && r.slow > 0 {
		took *= r.slow
	}
	environment := 0.0
	if r.stands != nil {
		ends := float64(r.now)/1e9 + took
		var until float64
		until, environment = r.stands(ends)
		took += until - ends
	}
	ev := trace.Event{Event: loop.Event{Time: r.now + int64(took*1e9), Kind: loop.RolloutScored, Slot: a.Slot, Group: a.Group, Sample: a.Sample, Attempt: a.Attempt,
		Tokens: tokens, Reward: float32(r.rng.IntN(2))}, GenerateNS: int64((took - environment) * 1e9), EnvironmentNS: int64(environment * 1e9)}
	heap.Push(&r.events, ev)
}

func (r *rig) train(a loop.Action) {
	if r.fails != nil {
		if after, back := r.fails(a.Version+1, float64(r.now)/1e9); back {
			r.after(after, loop.Event{Kind: loop.LeaseReturned, Lease: a.Lease, Attempt: a.Attempt, Reason: loop.ReasonTrainer})
			r.after(2*after, loop.Event{Kind: loop.TrainerReady})
			return
		}
	}
	if r.crashes > 0 && (a.Version+1)%r.crashes == 0 && a.Attempt == 1 {
		r.after(r.stepS, loop.Event{Kind: loop.TrainStepFailed, Lease: a.Lease, Attempt: a.Attempt, Reason: loop.ReasonTrainer})
		return
	}
	r.after(r.stepS*(0.9+0.2*r.rng.Float64()), loop.Event{Kind: loop.TrainStepEnded, Lease: a.Lease, Attempt: a.Attempt, Version: a.Version + 1})
}
