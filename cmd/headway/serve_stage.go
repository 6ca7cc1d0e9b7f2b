package main

import (
	"context"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/sandbox/pool"
	"github.com/headway-rl/headway/env/taskset"
	"github.com/headway-rl/headway/env/verifier"
	"github.com/headway-rl/headway/observe/report"
)

// openStage opens what rollouts are played with here, where they are.
func (p *plane) openStage(ctx context.Context, clock func() int64) error {
	if p.CodeTask != nil {
		p.CodeTask.Say, p.CodeTask.Spans = p.say, p.spans
		if err := p.OpenCode(ctx); err != nil {
			return err
		}
		p.CodeTask.Clock.Store(&clock)
	}
	if p.stage == nil {
		return nil
	}
	p.stage.cfg, p.stage.say, p.stage.now, p.stage.spans = p.Cfg, p.say, p.app.Now, p.spans
	if p.stage.tasks != nil {
		p.say("%s: %s to train on, %d held out", p.Cfg.Environment.Tasks.File, report.Counted(p.stage.tasks.Len(), "task"), p.stage.tasks.HeldOutLen())
		p.sayTasks(p.stage.tasks)
	}
	p.OnClose(p.stage.close) // its sandboxes before what their episodes ask
	return p.stage.open(ctx, p.Dir)
}

// tasksWarned bounds how many warnings of a task set are said at a start.
const tasksWarned = 20

// sayTasks tells the operator what is odd about the tasks, and what of their wants this run does not give them.
func (p *plane) sayTasks(set *taskset.Set) {
	for _, unmet := range parts.UnmetWants(set, p.Cfg) {
		p.say("%s: they are played without it", unmet)
	}
	warnings := set.Warnings()
	for _, warning := range warnings[:min(len(warnings), tasksWarned)] {
		p.say("%s", warning)
	}
	if more := len(warnings) - tasksWarned; more > 0 {
		p.say("and %s more of the tasks, which headway doctor lists", report.Counted(more, "warning"))
	}
}

// play has this process play the rollouts, where it is to, until the context ends.
func (p *plane) play(ctx context.Context, cancel context.CancelCauseFunc, clock func() int64) {
	if p.stage == nil {
		return
	}
	if err := p.stage.run(ctx, p.Workers, p.gateway, clock); err != nil {
		cancel(err)
	}
}

// environmentStatus is what the control plane's own players, sandboxes and verifier do, nil where
// somebody else's play.
func (p *plane) environmentStatus() *protocol.Environment {
	s := p.stage
	if s == nil {
		return p.workshopStatus()
	}
	out := &protocol.Environment{Kind: p.Cfg.Environment.Kind, Episodes: s.tally.Episodes()}
	if s.tasks != nil {
		out.Tasks = s.tasks.Len()
	}
	if players := s.players.Load(); players != nil {
		out.Episodes.Playing = players.Playing()
		out.Book = s.counts.status(s.book, p.app.Now())
		if s.pool != nil { // which is there before the players are, as the book is
			out.Sandboxes = sandboxStatus(s.pool.Status())
		}
	}
	if s.judge != nil {
		out.Verifier = verifierStatus(s.judge.Status())
	}
	return out
}

// workshopStatus is what the sandboxes of the task code do, nil where it is another task.
func (p *plane) workshopStatus() *protocol.Environment {
	w := p.CodeTask
	if w == nil || w.Clock.Load() == nil { // the pool is there before the clock is
		return nil
	}
	return &protocol.Environment{Kind: p.Cfg.Environment.Kind, Sandboxes: sandboxStatus(w.Pool.Status())}
}

func sandboxStatus(s pool.Status) *protocol.Sandboxes {
	return &protocol.Sandboxes{
		Driver: s.Driver, Secure: s.Boundary.Secure(), Lacks: s.Boundary.Why,
		Leased: s.Leased, Warm: s.Warm, Starting: s.Starting, Ending: s.Ending, Waiting: s.Waiting, WarmWanted: s.WarmWanted,
		Created: s.Created, Reused: s.Reused, Hits: s.Hits, Orphans: s.Orphans, Failures: byClass(s.Failures), Broken: s.Broken,
		StartS: protocol.Quantiles{P50: s.StartS[0], P90: s.StartS[1], P99: s.StartS[2]},
		WaitS:  protocol.Quantiles{P50: s.WaitS[0], P90: s.WaitS[1], P99: s.WaitS[2]},
	}
}

func verifierStatus(s verifier.Status) *protocol.Verifier {
	return &protocol.Verifier{
		Kind: s.Kind, Waiting: s.Waiting, Judging: s.Judging, Verdicts: s.Verdicts, Retries: s.Retries, Failures: byClass(s.Failures),
		WaitS:  protocol.Quantiles{P50: s.WaitS[0], P90: s.WaitS[1], P99: s.WaitS[2]},
		JudgeS: protocol.Quantiles{P50: s.JudgeS[0], P90: s.JudgeS[1], P99: s.JudgeS[2]},
	}
}

// byClass has counts under the names of their classes.
func byClass(counts map[sandbox.Class]int64) map[string]int64 {
	if len(counts) == 0 {
		return nil
	}
	named := make(map[string]int64, len(counts))
	for class, n := range counts {
		named[string(class)] = n
	}
	return named
}
