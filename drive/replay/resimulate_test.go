package replay_test

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/headway-rl/headway/drive/replay"
	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/loop/workload"
)

// drifting is a workload whose lengths and steps grow during the run, so that a
// resimulation which forgot the order would be noticed.
type drifting struct {
	sim.Work
	rejectEvery loop.GroupID
}

func (d drifting) Rollout(r sim.Rollout) sim.Response {
	w := d.Work.Rollout(r)
	w.Tokens += int32(r.Group) / 20
	if d.rejectEvery > 0 && r.Group%d.rejectEvery == 0 {
		w.Mark = loop.MarkReject
	}
	return w
}

func (d drifting) StepNS(lease loop.LeaseID, rollouts, tokens int64) int64 {
	return 20_000*tokens + int64(lease)*1e6
}

// simulated returns a simulation's config with an environment, C=32, S=4, B=16, q=2.
func simulated(t testing.TB, change func(*sim.Config)) sim.Config {
	t.Helper()
	lengths, err := workload.LengthSpec{Kind: workload.KindLognormal, MeanTokens: 100, Tailness: 50, CapTokens: 1000}.Build()
	if err != nil {
		t.Fatal(err)
	}
	tools, err := workload.TimesSpec{Kind: workload.KindLognormal, MeanS: 0.05, Tailness: 70}.Build()
	if err != nil {
		t.Fatal(err)
	}
	all, err := workload.NewAcceptance(1)
	if err != nil {
		t.Fatal(err)
	}
	cfg := sim.Config{
		Loop: loop.Config{GroupSize: 4, BatchGroups: 4, EngineSlots: []int{32}, QueueGroups: 8},
		Work: drifting{Work: sim.NewModelled(3, lengths, tools, all, 1)}, NSPerToken: 1e6, Measured: 400, Warmup: 50,
	}
	if change != nil {
		change(&cfg)
	}
	return cfg
}

// A trainer that came late, and was away for a while later, takes no longer for a step because of that.
func TestAnAbsentTrainerMakesNoStepLonger(t *testing.T) {
	cfg := simulated(t, func(c *sim.Config) {
		c.Loop.TrainerAsks, c.AskNS, c.Measured = true, 7e6, 150
		c.Loop.TrainSteps = loop.Version(c.Warmup + c.Measured)
	})
	var buf bytes.Buffer
	w, err := trace.NewWriter(&buf, trace.Header{Program: "test", Source: "simulation", Loop: cfg.Loop, Warmup: loop.Version(cfg.Warmup)})
	if err != nil {
		t.Fatal(err)
	}
	late, made := int64(0), loop.Version(0)
	cfg.Observe = func(ev loop.Event, gen, env int64, actions []loop.Action) {
		switch {
		case ev.Kind == loop.TrainStepEnded:
			made = ev.Version
		case ev.Kind == loop.TrainerReady && (made == 0 || made == 120):
			late += 300e9
		}
		ev.Time += late
		w.Event(trace.Event{Event: ev, GenerateNS: gen, EnvironmentNS: env}, actions)
	}
	want, err := sim.Run(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.End(nil); err != nil {
		t.Fatal(err)
	}
	rec := measure(t, buf.Bytes())
	if got := rec.AskNS(); got != 7e6 {
		t.Errorf("it asks after %d ns, want 7 ms", got)
	}
	got, err := rec.Resimulate(replay.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	for what, s := range map[string]float64{"resimulated": got.Summary.StepS.Mean, "measured": rec.Measured.StepS.Mean} {
		if math.Abs(s-want.Summary.StepS.Mean) > 0.02*s {
			t.Errorf("%s: a step takes %v s, it took %v", what, s, want.Summary.StepS.Mean)
		}
	}
	if n := got.Series[0].AbsentNS; n != 300e9+7e6 {
		t.Errorf("the simulated trainer came after %d ns, the recorded one after 300.007 s", n)
	}
	if text := strings.Join(got.Warnings, "; "); !strings.Contains(text, "the trainer was gone for 300 s") {
		t.Errorf("nothing says that it was away: %q", text)
	}
}

// record simulates and returns the trace, with notes where asked.
func record(t testing.TB, cfg sim.Config, cells []trace.ServiceCell) ([]byte, sim.Result) {
	t.Helper()
	var buf bytes.Buffer
	rules := cfg.Loop
	rules.TrainSteps = loop.Version(cfg.Warmup + cfg.Measured)
	w, err := trace.NewWriter(&buf, trace.Header{Program: "test", Source: "simulation", Loop: rules, Warmup: loop.Version(cfg.Warmup)})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Observe = func(ev loop.Event, gen, env int64, actions []loop.Action) {
		w.Event(trace.Event{Event: ev, GenerateNS: gen, EnvironmentNS: env}, actions)
	}
	if cells != nil {
		w.Note(trace.NoteService, trace.Service{Cells: cells})
	}
	res, err := sim.Run(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.End(nil); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes(), res
}

func measure(t testing.TB, data []byte) *replay.Recording {
	t.Helper()
	rec, err := replay.Measure(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// A run resimulated under its own settings is that run again.
func TestResimulationReproducesItsRun(t *testing.T) {
	for name, change := range map[string]func(*sim.Config){
		"drop":        nil,
		"newest":      func(c *sim.Config) { c.Loop.Select = loop.SelectNewest },
		"filtered":    func(c *sim.Config) { c.Work = drifting{c.Work.(drifting).Work, 5} },
		"two engines": func(c *sim.Config) { c.Loop.EngineSlots = []int{20, 12} },
		"synchronous": func(c *sim.Config) { c.Loop.Policy, c.Loop.QueueGroups = loop.PolicySynchronous, 4 },
		"sync time":   func(c *sim.Config) { c.SyncNS = 20e6 },
		"pause":       func(c *sim.Config) { c.SyncNS, c.LoadNS, c.Loop.Sync = 20e6, 30e6, loop.SyncPause },
	} {
		t.Run(name, func(t *testing.T) {
			data, want := record(t, simulated(t, change), nil)
			rec := measure(t, data)
			got, err := rec.Resimulate(replay.Settings{})
			if err != nil {
				t.Fatal(err)
			}
			s, w := got.Summary, want.Summary
			if got.Warmup != 50 || got.Steps != 400 || got.Extrapolated > 0.05 {
				t.Errorf("%d+%d steps, %.3f extrapolated", got.Warmup, got.Steps, got.Extrapolated)
			}
			tolerance := 0.01
			if name == "pause" { // how much of a rollout stood still is known in the mean alone
				tolerance = 0.02
			}
			near := func(what string, a, b float64) {
				if math.Abs(a-b) > tolerance*math.Abs(b)+1e-9 {
					t.Errorf("%s %.5g, the run had %.5g", what, a, b)
				}
			}
			near("staleness", s.Staleness.Mean, w.Staleness.Mean)
			near("p95", float64(s.Staleness.P95), float64(w.Staleness.P95))
			near("period", s.PeriodS.Mean, w.PeriodS.Mean)
			near("pqs", s.PQS.Mean, w.PQS.Mean)
			near("step", s.StepS.Mean, w.StepS.Mean)
			near("tail", s.TailMultiplier, w.TailMultiplier)
			near("trained length", s.Length.TrainedMeanTokens, w.Length.TrainedMeanTokens)
			near("acceptance", s.Acceptance, w.Acceptance)
		})
	}
}

// Under other settings the resimulation says what a run under those settings would
// have said, which here can be tried.
func TestResimulationPredictsOtherSettings(t *testing.T) {
	data, base := record(t, simulated(t, nil), nil)
	rec := measure(t, data)
	for name, change := range map[string]func(*loop.Config){
		"q=1":    func(c *loop.Config) { c.QueueGroups = 4 },
		"newest": func(c *loop.Config) { c.Select = loop.SelectNewest },
		"half C": func(c *loop.Config) { c.EngineSlots = []int{16} },
	} {
		cfg := simulated(t, nil)
		change(&cfg.Loop)
		want, err := sim.Run(cfg)
		if err != nil {
			t.Fatal(err)
		}
		got, err := rec.Resimulate(replay.Settings{Loop: &cfg.Loop})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		a, b := got.Summary.Staleness.Mean, want.Summary.Staleness.Mean
		t.Logf("%s: resimulated %.3f, run %.3f, before %.3f, extrapolated %.3f", name, a, b, base.Summary.Staleness.Mean, got.Extrapolated)
		if math.Abs(a-b) > 0.05*b {
			t.Errorf("%s: staleness %.4f, a run has %.4f", name, a, b)
		}
	}
}

// fixedEnvironment takes no time, so that every rollout in flight is decoding.
type fixedEnvironment struct{ sim.Work }

func (f fixedEnvironment) Rollout(r sim.Rollout) sim.Response {
	w := f.Work.Rollout(r)
	w.EnvironmentNS = 0
	return w
}

// observedCells simulates and measures the decode steps as an engine would.
func observedCells(t *testing.T, cfg sim.Config, speed sim.Speed) []trace.ServiceCell {
	t.Helper()
	sums := map[trace.ServiceCell]float64{} // ns by active and busy
	active, busy, last := 0, false, int64(0)
	var starting []int64 // when the engine takes up what has been started, in order
	until := func(at int64) {
		sums[trace.ServiceCell{Active: active, TrainerBusy: busy}] += float64(at - last)
		last = at
	}
	cfg.Observe = func(ev loop.Event, _, _ int64, actions []loop.Action) {
		for len(starting) > 0 && starting[0] <= ev.Time {
			until(starting[0])
			starting = starting[1:]
			active++
		}
		until(ev.Time)
		switch ev.Kind {
		case loop.RolloutScored:
			active--
		case loop.TrainStepEnded:
			busy = false
		}
		for _, a := range actions {
			switch a.Kind {
			case loop.StartRollout:
				starting = append(starting, ev.Time+cfg.StartNS)
			case loop.StartTrainStep:
				busy = true
			}
		}
	}
	if _, err := sim.Run(cfg); err != nil {
		t.Fatal(err)
	}
	var cells []trace.ServiceCell
	for c, ns := range sums {
		if c.Active > 0 && ns > 0 {
			c.NS = int64(ns)
			c.Steps = int64(ns * speed(c.Active, c.TrainerBusy) / cfg.NSPerToken)
			cells = append(cells, c)
		}
	}
	return cells
}

// Decode steps measured by active slots and trainer state are what the engines of
// the resimulation run at.
func TestResimulationUsesMeasuredSpeeds(t *testing.T) {
	speed := func(active int, busy bool) float64 {
		ns := 1 + float64(active)/32
		if busy {
			ns *= 1.5
		}
		return 1 / ns
	}
	cfg := simulated(t, func(c *sim.Config) {
		c.Speed = speed
		c.Work = drifting{Work: fixedEnvironment{c.Work.(drifting).Work}}
	})
	cells := observedCells(t, cfg, speed)
	data, want := record(t, cfg, cells)
	got, err := measure(t, data).Resimulate(replay.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	if a, b := got.Summary.Staleness.Mean, want.Summary.Staleness.Mean; math.Abs(a-b) > 0.03*b {
		t.Errorf("staleness %.4f, the run had %.4f", a, b)
	}
	if a, b := got.Summary.PeriodS.Mean, want.Summary.PeriodS.Mean; math.Abs(a-b) > 0.03*b {
		t.Errorf("period %.4f s, the run had %.4f s", a, b)
	}
	// Beyond the slots of the run nothing was measured, and it says so.
	rules := cfg.Loop
	rules.EngineSlots = []int{64}
	more, err := measure(t, data).Resimulate(replay.Settings{Loop: &rules, Steps: 200})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Warnings) > 0 || len(more.Warnings) != 1 || !strings.Contains(more.Warnings[0], "32") {
		t.Errorf("warnings %q with the run's slots, %q with twice as many", got.Warnings, more.Warnings)
	}
}

// A run of common decode steps, whose rollouts wait before and after the engine, is
// reproduced with those waits, though the trace says only how long things took.
func TestResimulationInDecodeSteps(t *testing.T) {
	speed := func(active int, busy bool) float64 { return 1 / (1 + float64(active)/40) }
	for name, change := range map[string]func(*sim.Config){
		"at once":        func(*sim.Config) {},
		"late":           func(c *sim.Config) { c.StartNS = 60e6 },
		"slow sync":      func(c *sim.Config) { c.LoadNS = 90e6 },
		"few long steps": func(c *sim.Config) { c.NSPerToken, c.Work = 30e6, tokensOver{c.Work, 30} },
	} {
		cfg := simulated(t, func(c *sim.Config) {
			c.Lockstep, c.Speed = true, speed
			c.Work = drifting{Work: fixedEnvironment{c.Work.(drifting).Work}}
			change(c)
		})
		data, want := record(t, cfg, observedCells(t, cfg, speed))
		got, err := measure(t, data).Resimulate(replay.Settings{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		a, b := got.Summary, want.Summary
		t.Logf("%s: staleness %.3f of %.3f, period %.3f of %.3f", name, a.Staleness.Mean, b.Staleness.Mean, a.PeriodS.Mean, b.PeriodS.Mean)
		if math.Abs(a.Staleness.Mean-b.Staleness.Mean) > 0.03*b.Staleness.Mean || math.Abs(float64(a.Staleness.P95-b.Staleness.P95)) > 1 {
			t.Errorf("%s: staleness %.4f p95 %d, the run had %.4f p95 %d", name, a.Staleness.Mean, a.Staleness.P95, b.Staleness.Mean, b.Staleness.P95)
		}
		if math.Abs(a.PeriodS.Mean-b.PeriodS.Mean) > 0.02*b.PeriodS.Mean {
			t.Errorf("%s: period %.4f s, the run had %.4f s", name, a.PeriodS.Mean, b.PeriodS.Mean)
		}
	}
}

// tokensOver is a workload of a fraction of the tokens.
type tokensOver struct {
	sim.Work
	by int32
}

func (o tokensOver) Rollout(r sim.Rollout) sim.Response {
	w := o.Work.Rollout(r)
	w.Tokens = 1 + w.Tokens/o.by
	return w
}

func (o tokensOver) StepNS(lease loop.LeaseID, rollouts, tokens int64) int64 {
	return o.Work.StepNS(lease, rollouts, tokens*int64(o.by))
}

// Settings that use groups up faster than the run did are simulated as far as its
// groups last.
func TestResimulationGoesAsFarAsTheGroupsLast(t *testing.T) {
	data, _ := record(t, simulated(t, nil), nil)
	rec := measure(t, data)
	faster := rec.Header.Loop
	faster.EngineSlots = []int{48}
	got, err := rec.Resimulate(replay.Settings{Loop: &faster})
	if err != nil {
		t.Fatal(err)
	}
	if got.Steps+got.Warmup >= 450 || got.Extrapolated > 0.02 || len(got.Warnings) != 2 || !strings.Contains(got.Warnings[1], "of 450 train steps") {
		t.Errorf("%d steps after %d, %.3f extrapolated, warnings %q", got.Steps, got.Warmup, got.Extrapolated, got.Warnings)
	}
	cfg := simulated(t, nil)
	cfg.Loop.EngineSlots, cfg.Measured = faster.EngineSlots, got.Steps
	want, err := sim.Run(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := got.Summary.Staleness.Mean, want.Summary.Staleness.Mean; math.Abs(a-b) > 0.02*b {
		t.Errorf("staleness %.4f, a run has %.4f", a, b)
	}
}

func TestResimulationRefusesWhatItCannotKnow(t *testing.T) {
	data, _ := record(t, simulated(t, nil), nil)
	rec := measure(t, data)
	if _, err := rec.Resimulate(replay.Settings{Steps: 900}); err == nil || !strings.Contains(err.Error(), "at most 20 %") {
		t.Errorf("twice the steps: %v", err)
	}
	bigger := rec.Header.Loop
	bigger.GroupSize = 8
	if _, err := rec.Resimulate(replay.Settings{Loop: &bigger}); err == nil || !strings.Contains(err.Error(), "groups of 4") {
		t.Errorf("larger groups: %v", err)
	}
	half := rec.Header.Loop // half the batch: as many groups, so twice the steps
	half.BatchGroups, half.QueueGroups = 2, 4
	if res, err := rec.Resimulate(replay.Settings{Loop: &half, Steps: 500}); err != nil || res.Warmup != 100 || res.Steps != 400 {
		t.Errorf("half the batch: %v, %d+%d steps", err, res.Warmup, res.Steps)
	}
	short, _ := record(t, simulated(t, func(c *sim.Config) { c.Warmup, c.Measured = 0, 1 }), nil)
	if _, err := measure(t, short).Resimulate(replay.Settings{}); err != nil && !strings.Contains(err.Error(), "longer") {
		t.Errorf("one step: %v", err)
	}
	header := data[:bytes.IndexByte(data, '\n')+1]
	if _, err := measure(t, header).Resimulate(replay.Settings{}); err == nil || !strings.Contains(err.Error(), "nothing to resimulate") {
		t.Errorf("an empty run: %v", err)
	}
	starved := rec.Header.Loop
	starved.Policy, starved.MaxStaleness = loop.PolicyMax, 0
	zero := int64(5e9)
	if _, err := rec.Resimulate(replay.Settings{Loop: &starved, SyncNS: &zero}); err == nil {
		t.Error("a starving setting was simulated to its end")
	}
}

// A live trace is measured the same through a restart: what the restart cut short
// leaves no trace in the times.
func TestMeasureThroughRestarts(t *testing.T) {
	for seed := range uint64(40) {
		run := live(t, seed, 400)
		rec := measure(t, run.data)
		started, complete := rec.Groups()
		if complete > started || started == 0 && rec.Version > 0 {
			t.Errorf("seed %d: %d of %d groups complete", seed, complete, started)
		}
		if complete > 0 && !(rec.NSPerToken() >= 0) {
			t.Errorf("seed %d: %g ns a token", seed, rec.NSPerToken())
		}
	}
}

// Factors on times and a cap on lengths act as a run with them would.
func TestResimulationScalesTimes(t *testing.T) {
	data, _ := record(t, simulated(t, nil), nil)
	rec := measure(t, data)
	free := 0.0
	for name, c := range map[string]struct {
		settings replay.Settings
		change   func(*sim.Config)
	}{
		"slower trainer": {replay.Settings{StepScale: 1.5}, func(c *sim.Config) { c.Work = scaledWork{c.Work, 1.5, 1, 0} }},
		"faster engines": {replay.Settings{SpeedScale: 1.25, Steps: 350}, func(c *sim.Config) { c.NSPerToken /= 1.25 }},
		"free tools":     {replay.Settings{OutsideScale: &free, Steps: 300}, func(c *sim.Config) { c.Work = scaledWork{c.Work, 1, 0, 0} }},
		"length cap":     {replay.Settings{CapTokens: 110, Steps: 350}, func(c *sim.Config) { c.Work = scaledWork{c.Work, 1, 1, 110} }},
	} {
		got, err := rec.Resimulate(c.settings)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		cfg := simulated(t, c.change)
		cfg.Warmup, cfg.Measured = got.Warmup, got.Steps
		want, err := sim.Run(cfg)
		if err != nil {
			t.Fatal(err)
		}
		a, b := got.Summary, want.Summary
		if math.Abs(a.Staleness.Mean-b.Staleness.Mean) > 0.02*b.Staleness.Mean || math.Abs(a.PeriodS.Mean-b.PeriodS.Mean) > 0.02*b.PeriodS.Mean ||
			a.Length.SampledMaxTokens != b.Length.SampledMaxTokens {
			t.Errorf("%s: staleness %.4f, period %.4f s, longest %d; a run has %.4f, %.4f s, %d", name,
				a.Staleness.Mean, a.PeriodS.Mean, a.Length.SampledMaxTokens, b.Staleness.Mean, b.PeriodS.Mean, b.Length.SampledMaxTokens)
		}
	}
	for _, s := range []replay.Settings{{StepScale: -1}, {SpeedScale: math.Inf(1)}, {CapTokens: -4}} {
		if _, err := rec.Resimulate(s); err == nil {
			t.Errorf("%+v was resimulated", s)
		}
	}
}

// scaledWork is a workload with other times and a cap on lengths; 0 is none.
type scaledWork struct {
	sim.Work
	step, outside float64
	most          int32
}

func (w scaledWork) Rollout(r sim.Rollout) sim.Response {
	res := w.Work.Rollout(r)
	res.EnvironmentNS = int64(float64(res.EnvironmentNS) * w.outside)
	if w.most > 0 {
		res.Tokens = min(res.Tokens, w.most)
	}
	return res
}

func (w scaledWork) StepNS(lease loop.LeaseID, rollouts, tokens int64) int64 {
	return int64(float64(w.Work.StepNS(lease, rollouts, tokens)) * w.step)
}

// The same settings differ in nothing; the interval of others' difference is paired, and much
// narrower than those of the sides, whose series drift together.
func TestEstimatesArePaired(t *testing.T) {
	data, _ := record(t, simulated(t, nil), nil)
	rec := measure(t, data)
	own, err := rec.Resimulate(replay.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	for key, e := range replay.Estimates(own, &own) {
		if *e.Difference != 0 || e.Difference95 == nil || *e.Difference95 != [2]float64{} {
			t.Errorf("%s differs from itself by %g, %v", key, *e.Difference, e.Difference95)
		}
	}
	rules := rec.Header.Loop
	rules.QueueGroups = 12
	longer, err := rec.Resimulate(replay.Settings{Loop: &rules})
	if err != nil {
		t.Fatal(err)
	}
	e := replay.Estimates(longer, &own)["staleness_mean"]
	alone, paired := e.Interval95[1]-e.Interval95[0], e.Difference95[1]-e.Difference95[0]
	if math.Abs(e.Mean-longer.Summary.Staleness.Mean) > 1e-9 || math.Abs(*e.Difference-e.Mean+own.Summary.Staleness.Mean) > 1e-9 || *e.Difference <= 0 || paired > alone/2 {
		t.Errorf("mean %g of %g, %g more (%v): paired %g wide, alone %g", e.Mean, longer.Summary.Staleness.Mean, *e.Difference, *e.Difference95, paired, alone)
	}
	if plain := replay.Estimates(longer, nil)["period_s"]; plain.Difference != nil || plain.Difference95 != nil {
		t.Errorf("compared with nothing: %+v", plain)
	}
}

// More train steps than were recorded, by far, are refused before they are simulated.
func TestFarMoreStepsThanRecorded(t *testing.T) {
	data, _ := record(t, simulated(t, nil), nil)
	rec := measure(t, data)
	simulated := 0
	out, err := rec.Resimulate(replay.Settings{Steps: 1_000_000_000, Stepped: func() { simulated++ }})
	if err == nil || !strings.Contains(err.Error(), "ask for fewer train steps") || simulated > 0 || out.Extrapolated < 0.99 {
		t.Errorf("%v after %d train steps, %.2f made up", err, simulated, out.Extrapolated)
	}
}

// A trace that ends in the middle of a line is measured up to there.
func TestMeasureATornTrace(t *testing.T) {
	data, _ := record(t, simulated(t, nil), nil)
	line := bytes.Count(data[:len(data)*3/4], []byte("\n")) + 1
	cut := bytes.LastIndexByte(data[:len(data)*3/4], '\n') + 1
	torn, whole := measure(t, data[:cut+20]), measure(t, data[:cut])
	if torn.Torn != line || whole.Torn != 0 || torn.Ended || torn.Version != whole.Version || torn.Measured.Staleness.Mean != whole.Measured.Staleness.Mean {
		t.Errorf("line %d of version %d, without it version %d", torn.Torn, torn.Version, whole.Version)
	}
	changed := bytes.Clone(data)
	changed[len(changed)/2] ^= 1
	if _, err := replay.Measure(bytes.NewReader(changed)); err == nil {
		t.Error("a changed byte was not noticed")
	}
}
