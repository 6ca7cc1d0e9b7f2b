package live

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/metrics"
	"github.com/headway-rl/headway/trace"
)

// release executes the actions whose events are in the log, and renders each as
// it was executed.
func (r *Runtime) release() error {
	for i := range r.due {
		d := &r.due[i]
		r.execute(d.action)
		r.lines = r.enc.AppendAction(r.lines, d.seq, d.action)
	}
	r.due = r.due[:0]
	switch {
	case r.finished:
		return nil
	case r.outstanding == 0 && len(r.inbox) == 0:
		return r.stalled("nothing is under way and nothing can start")
	case r.sinceStep > r.stallAfter:
		return r.stalled(fmt.Sprintf("%d rollouts ended since the last train step and no batch is full: look at the filter, the staleness budget and the queue", r.sinceStep))
	}
	return nil
}

func (r *Runtime) execute(a loop.Action) {
	switch a.Kind {
	case loop.StartRollout:
		r.startRollout(a)
	case loop.AbortRollout:
		r.rollout[a.Slot]()
	case loop.GroupLeased:
		r.lease = append(r.lease, Group{ID: a.Group, StartVersion: a.StartVersion, ReadyVersion: a.ReadyVersion, Rollouts: int(a.Count)})
	case loop.StartTrainStep:
		groups := r.lease
		r.lease, r.training, r.sinceStep = nil, true, 0
		r.setBusy(true)
		r.effect(func() completion { return r.train(a, groups) })
	case loop.LoadWeights:
		r.effect(func() completion { return r.load(a) })
	case loop.SwitchWeights:
		r.effect(func() completion { return r.switchWeights(a) })
	case loop.GroupTrained, loop.GroupEnded:
		delete(r.groups, a.Group)
		r.forget(a.Group)
	case loop.SyncCompleted:
		r.afterSync(a.Version)
	}
}

// effect runs f beside the loop and posts what it ends with.
func (r *Runtime) effect(f func() completion) {
	r.outstanding++
	r.wg.Add(1)
	go func() {
		defer r.wg.Done()
		c := f()
		c.event.Time = r.opt.Clock()
		r.inbox <- c
	}()
}

func (r *Runtime) setBusy(busy bool) {
	for _, e := range r.opt.Engines {
		if timed, ok := e.(Timed); ok {
			timed.SetTrainerBusy(busy)
		}
	}
}

// afterSync prunes versions and takes a snapshot now and then.
func (r *Runtime) afterSync(v loop.Version) {
	if keepFrom := v - loop.Version(r.opt.KeepVersions); keepFrom > 0 {
		if err := r.opt.Weights.Prune(keepFrom); err != nil {
			r.logf("pruning versions below %d: %v", keepFrom, err)
		}
	}
	if v-r.snapshotAt >= loop.Version(r.opt.SnapshotSteps) {
		r.snapshotAt = v
		if err := r.snapshot(); err != nil {
			r.logf("snapshot: %v", err)
		}
	}
}

func (r *Runtime) startRollout(a loop.Action) {
	ctx, cancel := context.WithCancel(r.ctx)
	r.rollout[a.Slot] = cancel
	r.groups[a.Group] = struct{}{}
	r.effect(func() completion {
		defer cancel()
		return r.play(ctx, a)
	})
}

// play plays one rollout attempt, makes its payload durable and says how it ended.
func (r *Runtime) play(ctx context.Context, a loop.Action) completion {
	ev := loop.Event{Slot: a.Slot, Group: a.Group, Sample: a.Sample, Attempt: a.Attempt}
	id := RolloutID{Group: a.Group, Sample: a.Sample, Attempt: a.Attempt}
	sampler := &slotSampler{engine: r.opt.Engines[a.Engine], id: id, clock: r.opt.Clock, first: func(v loop.Version) {
		first := ev
		first.Kind, first.Version, first.Time = loop.FirstToken, v, r.opt.Clock()
		r.inbox <- completion{event: first}
	}}
	began := r.opt.Clock()
	s, err := r.opt.Environment.Play(ctx, id, sampler)
	if ctx.Err() != nil {
		ev.Kind = loop.RolloutAborted
		return completion{event: ev}
	}
	if err == nil {
		err = checkSample(&s, id)
	}
	if err != nil {
		ev.Kind, ev.Reason = loop.RolloutFailed, loop.ReasonEnvironment
		if sampler.err != nil {
			ev.Reason = loop.ReasonEngine
		} else if errors.Is(err, context.DeadlineExceeded) {
			ev.Reason = loop.ReasonTimeout
		}
		return completion{event: ev, err: err}
	}
	s.GenerateNS = sampler.spent
	s.EnvironmentNS = max(r.opt.Clock()-began-s.GenerateNS, 0)
	if err := r.opt.Store.PutSample(s); err != nil {
		return completion{event: ev, fatal: fmt.Errorf("live: the payload of %v cannot be stored: %w", id, err)}
	}
	ev.Kind, ev.Tokens, ev.Reward = loop.RolloutScored, int32(s.ResponseTokens()), s.Reward
	m := metrics.Measured{EnvironmentNS: s.EnvironmentNS}
	for i, v := range s.Versions {
		if s.LossMask[i] == 1 {
			m.VersionTokens += int64(v)
		}
	}
	return completion{event: ev, measured: m, generateNS: s.GenerateNS}
}

// slotSampler is an engine's slot bound to one rollout.
type slotSampler struct {
	engine Engine
	id     RolloutID
	first  func(loop.Version)
	turn   int
	spent  int64
	clock  func() int64
	err    error
}

// Sample implements Sampler.
func (s *slotSampler) Sample(ctx context.Context, prompt []int32, maxTokens int) (Generation, error) {
	req := GenerateRequest{Rollout: s.id, Turn: s.turn, Prompt: prompt, MaxTokens: maxTokens}
	if s.turn == 0 {
		req.FirstToken = s.first
	}
	s.turn++
	began := s.clock()
	g, err := s.engine.Generate(ctx, req)
	s.spent += s.clock() - began
	if err == nil && (len(g.Tokens) == 0 || len(g.Tokens) != len(g.Logprobs) || len(g.Tokens) != len(g.Versions)) {
		err = fmt.Errorf("live: engine %s returned %d tokens, %d log-probs and %d versions for %v", s.engine.Name(), len(g.Tokens), len(g.Logprobs), len(g.Versions), s.id)
	}
	if err != nil {
		s.err = err
	}
	return g, err
}

// checkSample refuses what must never be trained on.
func checkSample(s *Sample, id RolloutID) error {
	n := len(s.Tokens)
	if s.ID != id {
		return fmt.Errorf("live: the environment returned a sample of %v for %v", s.ID, id)
	}
	if n == 0 || len(s.LossMask) != n || len(s.Logprobs) != n || len(s.Versions) != n {
		return fmt.Errorf("live: sample %v has %d tokens, %d mask entries, %d log-probs, %d versions: want equal numbers, at least 1", id, n, len(s.LossMask), len(s.Logprobs), len(s.Versions))
	}
	if r := float64(s.Reward); math.IsNaN(r) || math.IsInf(r, 0) {
		return fmt.Errorf("live: sample %v has the reward %g: want a finite number", id, r)
	}
	sampled := 0
	for i, m := range s.LossMask {
		if m == 0 {
			continue
		}
		sampled++
		if m != 1 {
			return fmt.Errorf("live: sample %v has the mask value %d at token %d: want 0 or 1", id, m, i)
		}
		if s.Versions[i] < 0 {
			return fmt.Errorf("live: sample %v has a token of unknown version at %d: nothing may be trained on it", id, i)
		}
		if p := float64(s.Logprobs[i]); math.IsNaN(p) || math.IsInf(p, 0) || p > 1e-3 {
			return fmt.Errorf("live: sample %v has the log-prob %g at token %d: want a finite number of at most 0", id, p, i)
		}
	}
	if sampled == 0 {
		return fmt.Errorf("live: sample %v has no token that the policy sampled", id)
	}
	return nil
}

// train makes one step, or finds that it had been made before this process began.
func (r *Runtime) train(a loop.Action, groups []Group) completion {
	ev := loop.Event{Lease: a.Lease, Attempt: a.Attempt}
	failed := func(err error) completion {
		ev.Kind, ev.Reason = loop.TrainStepFailed, loop.ReasonTrainer
		return completion{event: ev, err: err}
	}
	began := r.opt.Clock()
	if a.Attempt > 1 {
		lease, ok, err := r.opt.Weights.Committed(a.Version + 1)
		if err != nil {
			return failed(err)
		}
		if ok && lease == a.Lease {
			if err := r.opt.Trainer.Restore(r.ctx, a.Version+1); err != nil {
				return failed(err)
			}
			ev.Kind, ev.Version = loop.TrainStepEnded, a.Version+1
			return completion{event: ev}
		}
	}
	batch := Batch{Lease: a.Lease, Attempt: a.Attempt, Version: a.Version, Groups: groups}
	for i := range batch.Groups {
		samples, err := r.opt.Store.Samples(batch.Groups[i].ID)
		if err != nil {
			return failed(err)
		}
		if g := &batch.Groups[i]; len(samples) != g.Rollouts {
			return failed(fmt.Errorf("live: the store has %d payloads of group %d, which has %d scored rollouts", len(samples), g.ID, g.Rollouts))
		}
		batch.Groups[i].Samples = samples
	}
	if r.opt.OnBatch != nil {
		r.opt.OnBatch(batch)
	}
	report, err := r.opt.Trainer.Train(r.ctx, batch)
	if err != nil {
		return failed(err)
	}
	ev.Kind, ev.Version = loop.TrainStepEnded, a.Version+1
	step := &trace.Step{Lease: a.Lease, Tokens: report.Tokens, NS: r.opt.Clock() - began}
	return completion{event: ev, step: step, report: report}
}

func (r *Runtime) load(a loop.Action) completion {
	ev := loop.Event{Kind: loop.WeightsLoaded, Engine: a.Engine, Version: a.Version, Attempt: a.Attempt}
	err := r.opt.Engines[a.Engine].Load(r.ctx, a.Version)
	if err != nil {
		ev.Kind, ev.Reason = loop.SyncFailed, loop.ReasonSync
	}
	return completion{event: ev, err: err}
}

func (r *Runtime) switchWeights(a loop.Action) completion {
	ev := loop.Event{Kind: loop.WeightsSwitched, Engine: a.Engine, Version: a.Version, Attempt: a.Attempt}
	err := r.opt.Engines[a.Engine].Switch(r.ctx, a.Version, r.cfg.Sync == loop.SyncPause)
	if err != nil {
		ev.Kind, ev.Reason = loop.SyncFailed, loop.ReasonSync
	}
	return completion{event: ev, err: err}
}
