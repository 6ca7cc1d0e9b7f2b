package shrink_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/headway-rl/headway/cmd/lab/world/plan"
	"github.com/headway-rl/headway/cmd/lab/world/program/programtest"
	"github.com/headway-rl/headway/cmd/lab/world/shrink"
)

// A search comes down to what the failure needs, and to nothing else, with one job as with many.
func TestSmallest(t *testing.T) {
	want := plan.Plan{
		Seed: 7, Steps: 3, Planes: 1, Embedded: true, Workers: 1, Engines: []plan.Engine{{Slots: 2, TokenUS: 500}},
		Rules: plan.Rules{GroupSize: 1, Batch: 1, Queue: "policy: bounded, eta: 1", Attempts: 40, LeaseMS: 2000, ClaimMS: 2000, WriterMS: 1000},
		Faults: []plan.Fault{
			{Kind: plan.Double, Host: "trainer", ForMS: 100}, {Kind: plan.Kill, Host: "worker0", ForMS: 1, N: 1},
		},
	}
	for _, jobs := range []int{1, 2, 16} {
		var runs atomic.Int64
		s := shrink.Search{Jobs: jobs, Tries: 1, Fails: func(_ context.Context, p plan.Plan) (bool, error) {
			runs.Add(1)
			check(t, p)
			return programtest.Fails(p), nil
		}}
		changes := 0
		s.Adopted = func(p plan.Plan, change string) {
			changes++
			if !programtest.Fails(p) || change == "" {
				t.Errorf("%q is adopted, which does not fail", change)
			}
		}
		got, err := s.Smallest(context.Background(), programtest.Plan(7))
		if len(got.Faults) > 0 && got.Faults[0].ForMS < 112 { // times come down by tenths
			got.Faults[0].ForMS = 100
		}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%d jobs: %+v, %v; want %+v", jobs, got, err, want)
		}
		if runs.Load() > 600 || changes == 0 {
			t.Errorf("%d jobs: %d runs for %d changes", jobs, runs.Load(), changes)
		}
	}
}

// A cluster and events that are waited for are taken away where they are not needed.
func TestWithoutACluster(t *testing.T) {
	p := programtest.Plan(7)
	p.Brokers, p.Store = 3, plan.Store{SnapshotEvery: 1, NoTrace: true, PayloadBytesMax: 1 << 20, Prompt: 800}
	p.Faults = slices.DeleteFunc(p.Faults, func(f plan.Fault) bool { return f.Host == "broker" || f.Other == "broker" })
	event := plan.Await{By: "broker2", Writes: "_log/", N: 5, LaterMS: 300}
	for i := range p.Faults {
		p.Faults[i].Await = event
	}
	p.Faults = append(p.Faults, plan.Fault{Kind: plan.Cut, Host: "plane0", Other: "broker0", ForMS: 3000, Await: event}, plan.Fault{Kind: plan.Kill, Host: "broker1", N: 1})
	s := shrink.Search{Jobs: 2, Tries: 1, Fails: func(_ context.Context, p plan.Plan) (bool, error) {
		check(t, p)
		return programtest.Fails(p), nil
	}}
	got, err := s.Smallest(context.Background(), p)
	if err != nil || got.Brokers != 0 || got.Store != (plan.Store{}) || len(got.Faults) != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	for _, f := range got.Faults {
		if f.Await != (plan.Await{}) {
			t.Errorf("%+v waits", f)
		}
	}
}

// A cell goes with its faults where it is not needed. Where one is, what cells need stays.
func TestWithoutACell(t *testing.T) {
	p := programtest.Plan(7)
	p.Embedded, p.Rows, p.Receivers, p.Engines = false, false, 0, []plan.Engine{{Slots: 1, Cell: 1}, {Slots: 1, Cell: 2}, {Slots: 1}}
	p.Chat = &plan.Chat{Turns: 1, Choices: 1, Players: 1, WaitMS: 500}
	p.Faults = []plan.Fault{{Kind: plan.Kill, Host: "cell0"}, {Kind: plan.Kill, Host: "cell1"}, {Kind: plan.Reset, Host: "plane0", Await: plan.Await{By: "cell1", Sends: "x"}}}
	for cells := range 2 {
		fails := func(_ context.Context, p plan.Plan) (bool, error) {
			if err := p.Check(); err != nil {
				t.Error(err)
			}
			return len(p.Cells()) >= cells, nil
		}
		got, err := shrink.Search{Fails: fails, Tries: 1}.Smallest(context.Background(), p)
		if err != nil || len(got.Cells()) != cells || len(got.Faults) > 0 || len(got.Engines) != 1 || got.Chat != nil || got.Embedded != (cells == 0) {
			t.Errorf("%+v, %v", got, err)
		}
	}
}

// check holds a smaller plan to what a world needs.
func check(t *testing.T, p plan.Plan) {
	t.Helper()
	hosts := map[string]int{"plane": p.Planes, "engine": len(p.Engines), "worker": p.Workers}
	for role, n := range hosts {
		if n < 1 {
			t.Errorf("a plan has no %s", role)
		}
	}
	if p.Steps < 1 || p.Rules.Batch%p.Rules.GroupSize != 0 || p.Rules.Batch < 1 {
		t.Errorf("a plan has %d steps, and batches of %d of groups of %d", p.Steps, p.Rules.Batch, p.Rules.GroupSize)
	}
	known := map[string]bool{"": true, "trainer": true, "broker": !p.Embedded && p.Brokers == 0}
	hosts["receiver"], hosts["broker"] = p.Receivers, p.Brokers
	for role, n := range hosts {
		for i := range n {
			known[role+string(rune('0'+i))] = true
		}
	}
	for _, f := range p.Faults {
		if !known[f.Host] || !known[f.Other] || !known[f.Await.By] {
			t.Errorf("a fault is of %s, %s and %s, which are not there", f.Host, f.Other, f.Await.By)
		}
	}
}

// Of a chat that a failure needs, what it does not need goes.
func TestPlainerChats(t *testing.T) {
	p := programtest.Plan(7)
	p.Chat = &plan.Chat{Turns: 3, Choices: 2, Stream: true, LeaveMS: 30, Players: 2, WaitMS: 500}
	for _, needed := range []bool{true, false} {
		fails := func(_ context.Context, p plan.Plan) (bool, error) {
			return !needed || p.Chat != nil && p.Chat.Stream, nil
		}
		got, err := shrink.Search{Fails: fails, Tries: 1}.Smallest(context.Background(), p)
		if want := (plan.Chat{Turns: 1, Choices: 1, Stream: true, WaitMS: 500}); err != nil || (got.Chat != nil) != needed || needed && *got.Chat != want {
			t.Errorf("%+v, %v, want %+v", got.Chat, err, want)
		}
	}
	if p.Chat.Turns != 3 {
		t.Error("the search has changed the plan that it was given")
	}
}

// A plan that fails with another seed alone is found with that seed.
func TestTries(t *testing.T) {
	fails := func(_ context.Context, p plan.Plan) (bool, error) {
		return p.Seed%3 == uint64(len(p.Faults))%3, nil
	}
	p := programtest.Plan(9) // 6 faults
	got, err := shrink.Search{Fails: fails, Tries: 3}.Smallest(context.Background(), p)
	if err != nil || len(got.Faults) != 0 || got.Steps != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	if ok, _ := fails(context.Background(), got); !ok {
		t.Errorf("%+v does not fail", got)
	}
}

// An interrupted search, or one that cannot run a plan, has the smallest plan so far.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	s := shrink.Search{Fails: func(_ context.Context, p plan.Plan) (bool, error) { return programtest.Fails(p), nil }}
	s.Adopted = func(plan.Plan, string) { cancel() }
	got, err := s.Smallest(ctx, programtest.Plan(7))
	if !errors.Is(err, context.Canceled) || len(got.Faults) != 3 || !programtest.Fails(got) {
		t.Errorf("%+v, %v", got, err)
	}
	broken := errors.New("no room")
	s.Fails = func(context.Context, plan.Plan) (bool, error) { return false, broken }
	if _, err := s.Smallest(context.Background(), programtest.Plan(7)); !errors.Is(err, broken) {
		t.Errorf("%v, want %v", err, broken)
	}
}
