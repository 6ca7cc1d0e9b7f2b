package golden_test

import (
	"slices"
	"testing"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
)

// truth is what a simulated run was. A generator writes it down as a framework would have
// logged it; what the importer makes of those files is compared with it.
type truth struct {
	Framework string         `json:"framework"`
	Settings  truthSettings  `json:"settings"`
	Steps     []truthStep    `json:"steps"`
	Rollouts  []truthRollout `json:"rollouts,omitempty"`
}

// truthSettings are rollouts where no name says otherwise.
type truthSettings struct {
	Concurrency int     `json:"concurrency"`
	Batch       int     `json:"batch"`
	GroupSize   int     `json:"group_size"`
	Queue       int     `json:"queue"`
	Budget      float64 `json:"budget"`
	SyncEvery   int     `json:"sync_every"`
	CapTokens   int     `json:"cap_tokens"`
}

// truthStep is a train step: seconds, versions, rollouts.
type truthStep struct {
	// Step is the version it made; it trained from the one before.
	Step int64 `json:"step"`
	// Asked is when the trainer was free for it, Start and End are the step itself.
	Asked  float64 `json:"asked_s"`
	Start  float64 `json:"start_s"`
	End    float64 `json:"end_s"`
	Period float64 `json:"period_s"`
	// Sync is the time of the weight sync after it, 0 where none followed.
	Sync         float64 `json:"sync_s"`
	Staleness    float64 `json:"staleness"`
	StalenessMax float64 `json:"staleness_max"`
	PQS          float64 `json:"pqs"`
	IQS          float64 `json:"iqs"`
	Token        float64 `json:"token_staleness"`
	// First and Last are the staleness of a rollout, by the first and the last version that sampled a
	// token of it; First is below Staleness, which is the group's.
	First   float64 `json:"staleness_of_rollouts"`
	Last    float64 `json:"staleness_of_last_versions"`
	Tokens  float64 `json:"response_tokens"`
	Reward  float64 `json:"reward"`
	Trained int     `json:"trained"`
	// Dropped, Filtered and Finished are rollouts since the step before.
	Dropped  int `json:"dropped"`
	Filtered int `json:"filtered"`
	Finished int `json:"finished"`
	// InFlight and Queued are the state when the step began, its batch taken out, InFlightEnd and
	// QueuedEnd when it ended.
	InFlight    int   `json:"in_flight"`
	Queued      int   `json:"queued"`
	InFlightEnd int   `json:"in_flight_end"`
	QueuedEnd   int   `json:"queued_end"`
	Groups      []int `json:"groups,omitempty"`
}

// truthRollout is a rollout that was scored.
type truthRollout struct {
	Group  int     `json:"group"`
	Sample int     `json:"sample"`
	Start  float64 `json:"start_s"`
	End    float64 `json:"end_s"`
	// Generate and Environment are parts of its time.
	Generate    float64 `json:"generate_s"`
	Environment float64 `json:"environment_s"`
	// Spans are runs of tokens of one version: version, tokens.
	Spans  [][2]int64 `json:"spans"`
	Tokens int        `json:"tokens"`
	Reward float64    `json:"reward"`
	// Stamp and Ready are the group's: the version at its first token, and when it became ready; Trained is
	// the version its train step started from, -1 if there was none; Fate is what else became of it.
	Stamp   int64   `json:"stamp"`
	Ready   int64   `json:"ready"`
	ReadyAt float64 `json:"ready_s"`
	Trained int64   `json:"trained"`
	Fate    string  `json:"fate,omitempty"`
}

// simulateTruth runs a document and writes down what happened.
func simulateTruth(t *testing.T, framework, document string) truth {
	t.Helper()
	d, err := config.Parse(framework, []byte(document))
	if err == nil {
		d, err = d.Resolve()
	}
	if err == nil {
		d, err = d.ForSimulation()
	}
	if err != nil {
		t.Fatal(err)
	}
	cfg := simulation(t, d)
	r := newRecording(cfg)
	cfg.Observe = r.observe
	result, err := sim.Run(cfg)
	if err != nil {
		t.Fatal(err)
	}
	out := r.truth()
	out.Framework = framework
	out.Settings = truthSettings{Concurrency: cfg.Loop.Concurrency(), Batch: d.Train.Batch, GroupSize: cfg.Loop.GroupSize,
		Queue: cfg.Loop.QueueGroups * cfg.Loop.GroupSize, Budget: float64(max(cfg.Loop.MaxStaleness, loop.Version(cfg.Loop.Eta))),
		SyncEvery: max(cfg.Loop.SyncEvery, 1), CapTokens: int(cfg.CapTokens)}
	// The recording is the tests' own; what the metrics say of the same events must agree with it.
	for i, step := range result.Series {
		mine := out.Steps[i]
		if !near(mine.Staleness, step.Staleness, 1e-9) || !near(mine.PQS, step.PQS, 1e-9) || !near(mine.Token, step.TokenStaleness, 0.01) ||
			!near(mine.Period, float64(step.PeriodNS)/1e9, 1e-6) || !near(mine.Reward, step.Reward, 1e-6) {
			t.Fatalf("%s, step %d: the recording has %+v, the metrics %+v", framework, step.Step, mine, step)
		}
	}
	return out
}

// near reports whether two figures differ by no more than a tolerance.
func near(a, b, tolerance float64) bool { return a-b <= tolerance && b-a <= tolerance }

// simulation is a document's, with one rate for all slots.
func simulation(t *testing.T, d config.Config) sim.Config {
	t.Helper()
	lengths, err := d.LengthModel()
	if err != nil {
		t.Fatal(err)
	}
	environment, err := d.EnvironmentTimes()
	if err != nil {
		t.Fatal(err)
	}
	solve, err := d.SolveModel()
	if err != nil {
		t.Fatal(err)
	}
	acceptance, err := d.AcceptanceModel()
	if err != nil {
		t.Fatal(err)
	}
	work := sim.NewModelled(d.Seed, lengths, environment, acceptance, int64(d.Modelled.Train.StepS*1e9)).WithSolve(solve).WithStep(sim.Step{CV: d.Modelled.Train.StepCV})
	return sim.Config{Loop: d.LoopConfig(), Work: work, NSPerToken: 1e9 / d.Modelled.DecodeTokensPerS,
		LoadNS: int64(d.Modelled.Sync.LoadS * 1e9), SyncNS: int64(d.Modelled.Sync.TimeS * 1e9), CapTokens: int32(d.Modelled.Length.CapTokens),
		Warmup: d.Steps.Warmup, Measured: d.Steps.Measured}
}

// recording follows a simulation's events.
type recording struct {
	nsPerToken float64
	inFlight   bool // engines generate through a sync
	running    map[rolloutKey]*attempt
	stopped    map[rolloutKey]*attempt
	held       map[int32]int64 // engines that stand still, since when
	rollouts   []truthRollout
	ofGroup    map[int][]int // indices of its rollouts
	queued     map[int]bool
	steps      []truthStep
	step       truthStep
	batch      []loop.Action
	freeAt     int64 // since when the trainer has had nothing to do
	syncFrom   int64
	blocked    bool
}

type rolloutKey struct {
	group  loop.GroupID
	sample int32
}

// attempt is a running rollout.
type attempt struct {
	start   int64
	engine  int32
	resumed int64 // when it began to generate on
	before  float64
	// version generates now; spans are those before, with how many tokens there were at their ends.
	version loop.Version
	spans   []spanEnd
	waits   bool // its engine stands still
}

type spanEnd struct {
	version loop.Version
	tokens  float64
}

func newRecording(cfg sim.Config) *recording {
	return &recording{nsPerToken: cfg.NSPerToken, inFlight: cfg.Loop.Sync == loop.SyncInFlight, blocked: cfg.Loop.TrainerBlocked,
		running: map[rolloutKey]*attempt{}, stopped: map[rolloutKey]*attempt{}, held: map[int32]int64{}, ofGroup: map[int][]int{}, queued: map[int]bool{}}
}

// tokens is how many an attempt has by now.
func (r *recording) tokens(a *attempt, now int64) float64 {
	if a.waits {
		return a.before
	}
	return a.before + float64(now-a.resumed)/r.nsPerToken
}

func (r *recording) observe(ev loop.Event, generateNS, environmentNS int64, actions []loop.Action) {
	key := rolloutKey{ev.Group, ev.Sample}
	switch ev.Kind {
	case loop.WeightsSwitched:
		delete(r.held, ev.Engine)
		for _, a := range r.running {
			if a.engine == ev.Engine {
				a.before = r.tokens(a, ev.Time)
				a.spans = append(a.spans, spanEnd{a.version, a.before})
				a.version, a.resumed, a.waits = ev.Version, ev.Time, false
			}
		}
	case loop.RolloutScored:
		r.scored(ev, generateNS, environmentNS)
	case loop.RolloutInterrupted:
		a := r.running[key]
		a.before = float64(ev.Tokens)
		a.spans = append(a.spans, spanEnd{a.version, a.before})
		delete(r.running, key)
		r.stopped[key] = a
	case loop.RolloutAborted, loop.RolloutFailed:
		delete(r.running, key)
	case loop.TrainStepEnded:
		r.stepEnded(ev)
	}
	for i := range actions {
		r.follow(ev.Time, &actions[i])
	}
}

func (r *recording) follow(now int64, a *loop.Action) {
	key := rolloutKey{a.Group, a.Sample}
	switch a.Kind {
	case loop.StartRollout:
		_, waits := r.held[a.Engine]
		r.running[key] = &attempt{start: now, engine: a.Engine, resumed: now, version: a.Version, waits: waits}
	case loop.ResumeRollout:
		stopped := r.stopped[key]
		delete(r.stopped, key)
		stopped.engine, stopped.resumed, stopped.version = a.Engine, now, a.Version
		r.running[key] = stopped
	case loop.SwitchWeights:
		if r.inFlight {
			return
		}
		r.held[a.Engine] = now
		for _, b := range r.running {
			if b.engine == a.Engine {
				b.before, b.waits = r.tokens(b, now), true
			}
		}
	case loop.GroupQueued, loop.GroupHeld:
		r.ready(now, a)
	case loop.GroupLeased:
		delete(r.queued, int(a.Group))
		r.batch = append(r.batch, *a)
	case loop.GroupEnded:
		r.ended(a)
	case loop.StartTrainStep:
		r.step.Asked, r.step.Start = seconds(r.freeAt), seconds(now)
		r.step.InFlight, r.step.Queued = len(r.running), len(r.queued)
	case loop.LoadWeights:
		r.syncFrom = now
	case loop.SyncCompleted:
		if n := len(r.steps); n > 0 {
			r.steps[n-1].Sync = seconds(now - r.syncFrom)
			if r.blocked {
				r.freeAt = max(r.freeAt, now)
			}
		}
	}
}

func seconds(ns int64) float64 { return float64(ns) / 1e9 }

func (r *recording) scored(ev loop.Event, generateNS, environmentNS int64) {
	key := rolloutKey{ev.Group, ev.Sample}
	a := r.running[key]
	delete(r.running, key)
	out := truthRollout{Group: int(ev.Group), Sample: int(ev.Sample), Start: seconds(a.start), End: seconds(ev.Time),
		Generate: seconds(generateNS), Environment: seconds(environmentNS), Tokens: int(ev.Tokens), Reward: float64(ev.Reward), Trained: -1}
	last := int64(0)
	for _, s := range append(a.spans, spanEnd{a.version, float64(ev.Tokens)}) {
		// A switch while its environment plays leaves no tokens of the new version.
		to := min(int64(s.tokens), int64(ev.Tokens))
		if to > last {
			out.Spans = append(out.Spans, [2]int64{int64(s.version), to - last})
			last = to
		}
	}
	r.ofGroup[out.Group] = append(r.ofGroup[out.Group], len(r.rollouts))
	r.rollouts = append(r.rollouts, out)
	r.step.Finished++
}

func (r *recording) ready(now int64, a *loop.Action) {
	r.queued[int(a.Group)] = true
	for _, i := range r.ofGroup[int(a.Group)] {
		r.rollouts[i].Stamp, r.rollouts[i].Ready, r.rollouts[i].ReadyAt = int64(a.StartVersion), int64(a.Version), seconds(now)
	}
}

func (r *recording) ended(a *loop.Action) {
	delete(r.queued, int(a.Group))
	fate := "dropped"
	if a.End == loop.EndFiltered {
		fate = "filtered"
		r.step.Filtered += len(r.ofGroup[int(a.Group)])
	} else {
		r.step.Dropped += len(r.ofGroup[int(a.Group)])
	}
	for _, i := range r.ofGroup[int(a.Group)] {
		r.rollouts[i].Fate = fate
	}
}

func (r *recording) stepEnded(ev loop.Event) {
	s := &r.step
	s.Step, s.End = int64(ev.Version), seconds(ev.Time)
	if n := len(r.steps); n > 0 {
		s.Period = s.End - r.steps[n-1].End
	} else {
		s.Period = s.End
	}
	tokens, lag := 0.0, 0.0
	for _, a := range r.batch {
		total, pre, in := a.Staleness()
		s.Staleness += float64(total)
		s.PQS += float64(pre)
		s.IQS += float64(in)
		s.StalenessMax = max(s.StalenessMax, float64(total))
		s.Groups = append(s.Groups, int(a.Group))
		for _, i := range r.ofGroup[int(a.Group)] {
			out := &r.rollouts[i]
			out.Trained = int64(a.Version)
			s.Trained++
			s.Reward += out.Reward
			s.First += float64(int64(a.Version) - out.Spans[0][0])
			s.Last += float64(int64(a.Version) - out.Spans[len(out.Spans)-1][0])
			for _, span := range out.Spans {
				tokens += float64(span[1])
				lag += float64(span[1]) * float64(int64(a.Version)-span[0])
			}
		}
	}
	groups := float64(len(r.batch))
	s.Staleness, s.PQS, s.IQS = s.Staleness/groups, s.PQS/groups, s.IQS/groups
	rollouts := float64(s.Trained)
	s.Token, s.Tokens, s.Reward, s.First, s.Last = lag/tokens, tokens/rollouts, s.Reward/rollouts, s.First/rollouts, s.Last/rollouts
	s.InFlightEnd, s.QueuedEnd = len(r.running), len(r.queued)
	r.steps = append(r.steps, *s)
	r.step, r.batch, r.freeAt = truthStep{}, nil, ev.Time
}

// truth is what was recorded; rollouts in the order in which they ended.
func (r *recording) truth() truth {
	return truth{Steps: slices.Clone(r.steps), Rollouts: r.rollouts}
}
