package dashboard

import (
	"math"
	"strings"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/attribution"
	"github.com/headway-rl/headway/observe/metrics"
)

// The rates of a run that goes on, what bound and why each side waited are of the same train steps, which are said; while
// it makes no progress they are not said to be so now.
func TestHealthIsOfTheStepsItSays(t *testing.T) {
	stall := ""
	model := New(Options{Rules: rules(), Warmup: 5, Stall: func() string { return stall }})
	m := newMachine(t, model.Observe)
	check := func(from, to loop.Version) {
		t.Helper()
		h := model.Summary().Health
		if h.FromStep != from || h.ToStep != to || !(h.WindowS > 0) || h.Binding == "" || !strings.Contains(h.Sentence, "enter the queue") {
			t.Errorf("steps %d to %d, want %d to %d: %+v", h.FromStep, h.ToStep, from, to, h)
		}
		if math.Abs(h.IdleTrainer.Total-h.TrainerIdle) > 1e-9 || math.Abs(h.IdleEngines.Total-h.RolloutIdle) > 1e-9 {
			t.Errorf("idle %v and %v, by cause %+v and %+v", h.TrainerIdle, h.RolloutIdle, h.IdleTrainer, h.IdleEngines)
		}
	}
	for model.rec.Version() < 50 {
		m.turn()
	}
	check(50-metrics.RecentSteps+1, 50)
	stall = "engine-0 is gone"
	if h := model.Summary().Health; h.Binding != "" || strings.Contains(h.Sentence, "rollouts/s") || !strings.Contains(h.Sentence, "of train steps 19 to 50") {
		t.Errorf("without progress: %+v", h)
	}
	stall = ""
	model.End("")
	check(6, 50)
}

// Where the trainer waited mostly because no engine served, none of the sides is said to bind, for as long as these
// steps count.
func TestAnOutageIsNoSidesDoing(t *testing.T) {
	model := New(Options{Rules: rules()})
	m := newMachine(t, model.Observe)
	for model.rec.Version() < 40 {
		m.turn()
	}
	for _, kind := range []loop.EventKind{loop.EngineLost, loop.EngineJoined} {
		for engine := range int32(2) {
			m.step(loop.Event{Kind: kind, Engine: engine, Reason: loop.ReasonEngine})
		}
		m.now += 60e9
	}
	for model.rec.Version() < 41 {
		m.turn()
	}
	for version := model.rec.Version(); version < 41+metrics.RecentSteps+1; version = model.rec.Version() {
		h := model.Summary().Health
		if said := strings.Contains(h.Sentence, "because no engine served"); said != (version < 41+metrics.RecentSteps) || said != (h.Binding == "") {
			t.Fatalf("step %d: %q binds: %s", version, h.Binding, h.Sentence)
		}
		for model.rec.Version() == version {
			m.turn()
		}
	}
}

// A run without a trainer says that it waits for one, since when, and what is full; no side binds, and its time goes on.
func TestHealthWithoutATrainer(t *testing.T) {
	cfg := rules()
	cfg.TrainerAsks = true
	var status loop.Status
	model := New(Options{Rules: cfg, Status: func() loop.Status { return status }})
	m := machineOf(t, cfg, model.Observe)
	for range 400 {
		m.turn()
	}
	status = m.loop.Status()
	status.TimeNS = m.now + 90e9
	s := model.Summary()
	if s.Version != 0 || s.AtNS != status.TimeNS || s.Health.Binding != "" || !strings.Contains(s.Health.Sentence, "No trainer has asked for a batch in 1m36s") {
		t.Errorf("at %d, version %d: %q binds: %s", s.AtNS, s.Version, s.Health.Binding, s.Health.Sentence)
	}
	if q := s.Queue; q.Groups < q.Capacity || !strings.Contains(s.Health.Sentence, "it is full, and engines wait for a trainer") {
		t.Errorf("%+v: %s", q, s.Health.Sentence)
	}
	model.End("")
	if s := model.Summary(); s.AtNS > m.now || strings.Contains(s.Health.Sentence, "wait for a trainer") {
		t.Errorf("ended at %d: %s", s.AtNS, s.Health.Sentence)
	}
}

// What binds is said in a sentence that is one.
func TestWhatBindsIsSaid(t *testing.T) {
	for binding, want := range map[string]string{"environment": "; environments bind: the trainer waits 40 %", "rollout": "; generation binds: the trainer waits 40 %",
		"verifier": "; the verifier binds:", "scorer": "; scorers bind:", "sandbox": "; sandboxes bind:", "train": "it is busy 50 % of the time"} {
		h := Health{Throughput: metrics.Throughput{Binding: binding}, TrainerIdle: 0.4, TrainerAbsent: 0.1, IdleTrainer: attribution.Idle{Total: 0.4, Starved: 0.4}}
		if got := h.sentence(4, false); !strings.Contains(got, want) {
			t.Errorf("%s: %q lacks %q", binding, got, want)
		}
	}
}

// Of a group that is not known it is said why, and what there is of those like it.
func TestWhyAGroupIsNotKnown(t *testing.T) {
	whole := New(Options{Rules: rules(), GroupsMax: 20})
	var again *Model
	m := newMachine(t, func(ev *loop.Event, measured *metrics.Measured, actions []loop.Action) {
		if again != nil {
			again.Observe(ev, measured, actions)
		}
		whole.Observe(ev, measured, actions)
	})
	for whole.rec.Version() < 30 {
		m.turn()
	}
	recorder, err := metrics.Restore(rules(), whole.rec.State())
	if err != nil {
		t.Fatal(err)
	}
	again = New(Options{Rules: rules(), Recorder: recorder})
	for whole.rec.Version() < 40 {
		m.turn()
	}
	for _, c := range []struct {
		model *Model
		id    string
		want  string
	}{{again, "40", "ended before the run's process was started again"}, {again, "9999", "has not begun: the newest is"}, {whole, "40", "older than the 20 groups"}, {whole, "0", "has not begun"}} {
		var answer struct{ Error struct{ Message string } }
		if code := get(t, c.model.Data(), "/api/v1/view/groups/"+c.id, &answer); code != 404 || !strings.Contains(answer.Error.Message, c.want) {
			t.Errorf("group %s: %d %q, want %q", c.id, code, answer.Error.Message, c.want)
		}
	}
}
