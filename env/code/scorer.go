package code

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/headway-rl/headway/env"
	"github.com/headway-rl/headway/env/episode"
	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/loop/port"
)

// Boxes hands out sandboxes, each to one holder until the holder closes it. One that also has the
// methods of [Timed] is asked where the time of its start went.
type Boxes interface {
	Lease(ctx context.Context, holder string) (sandbox.Box, error)
}

// Timed is a box that comes up at its first use, and says how long that took.
type Timed interface {
	// Ready returns once commands can run in it.
	Ready(ctx context.Context) error
	// Waited is how long no box might start, Started how long its start took from then on.
	Waited() time.Duration
	Started() time.Duration
}

// ScorerOptions of a scorer. Zero values stand for the defaults that are named.
type ScorerOptions struct {
	// ProgramS is the processor time that a program may take for all of its tests, in seconds. Default 0.2.
	ProgramS float64
	// Clock is nanoseconds since the run's start; default since the scorer was made.
	Clock func() int64
	// Record takes a line for every rollout that was judged or could not be. It is called from any goroutine,
	// and may be nil.
	Record func(episode.Record)
}

// ProgramDefault is the default of ScorerOptions.ProgramS, in seconds.
const ProgramDefault = 0.2

// Score runs programs in sandboxes and says what they are worth. It implements [env.Scorer] and is safe
// for concurrent use.
//
// A program that meets a limit (it never ends, it takes all memory) is worth the checks that it passed
// until then. A box may not start, be lost, or fail to run the tests. Each of these is an error that wraps a
// [sandbox.Failure], and is no reward.
type Scorer struct {
	task  *Task
	boxes Boxes
	cpu   time.Duration
	o     ScorerOptions
}

// NewScorer returns the scorer of a task's programs.
func NewScorer(task *Task, boxes Boxes, o ScorerOptions) *Scorer {
	o.ProgramS = cmp.Or(o.ProgramS, ProgramDefault)
	if o.Clock == nil {
		began := time.Now()
		o.Clock = func() int64 { return time.Since(began).Nanoseconds() }
	}
	if o.Record == nil {
		o.Record = func(episode.Record) {}
	}
	return &Scorer{task: task, boxes: boxes, cpu: time.Duration(o.ProgramS * float64(time.Second)), o: o}
}

// Begin implements [env.Scorer].
func (j *Scorer) Begin(id port.RolloutID, p env.Problem) env.Scoring {
	now := j.o.Clock()
	return &scoring{scorer: j, problem: p, name: fmt.Sprintf("g%d-s%d-a%d", id.Group, id.Sample, id.Attempt), beganNS: now, sampledNS: now}
}

// scoring is one rollout before its scorer.
type scoring struct {
	scorer             *Scorer
	problem            env.Problem
	name               string
	beganNS, sampledNS int64
}

// Sampled implements [env.Scoring].
func (t *scoring) Sampled() { t.sampledNS = t.scorer.o.Clock() }

// Score implements [env.Scoring].
func (t *scoring) Score(ctx context.Context, response []int32) (env.Score, error) {
	j := t.scorer
	r := record{spans: spans{at: t.beganNS}}
	r.to(episode.Model, "", t.sampledNS)
	if now := j.o.Clock(); now-t.sampledNS > int64(time.Millisecond) {
		r.to(episode.Tool, "service_time", now)
	}
	box, err := j.boxes.Lease(ctx, t.name)
	if err == nil {
		defer box.Close(context.WithoutCancel(ctx)) // who has handed it out hears of what goes wrong there
		if timed, ok := box.(Timed); ok {
			err = timed.Ready(ctx)
			r.to(episode.SandboxWait, "", r.at+timed.Waited().Nanoseconds())
			r.to(episode.SandboxStart, "", r.at+timed.Started().Nanoseconds())
		}
		r.Box = string(box.ID())
	}
	var outcomes []outcome
	if err == nil {
		outcomes, err = j.run(ctx, box, []source{j.source(t.problem, response)})
	}
	var score env.Score
	if err == nil {
		score = j.task.score(t.problem, response, outcomes[0].runs)
		r.to(episode.Verifier, "", j.o.Clock())
		r.met(outcomes[0])
		r.Reward = &score.Reward
	} else {
		r.failed(ctx, err, j.o.Clock())
	}
	r.Rollout, r.Task, r.Turns = t.name, j.task.ReadPrompt(t.problem), 1
	j.o.Record(r.line())
	return score, err
}

func (j *Scorer) source(p env.Problem, response []int32) source {
	return source{j.task.Program(response), j.task.inputs(p)}
}

// run runs programs in a box. What came of each is in their order.
func (j *Scorer) run(ctx context.Context, box sandbox.Box, programs []source) ([]outcome, error) {
	if j.task.language == Go {
		return j.runGo(ctx, box, programs)
	}
	result, err := box.Run(ctx, pythonCommand(programs, j.cpu))
	if err != nil {
		return nil, err
	}
	answers, begun := bytes.CutPrefix(result.Stdout, []byte(ready))
	outcomes := parsePython(answers, len(programs))
	rest := programs[len(outcomes):]
	switch {
	case len(rest) == 0:
		return outcomes, nil
	case len(programs) > 1: // one of those that are left ended them all: find out which
		for len(rest) > 0 {
			n := (len(rest) + 1) / 2
			more, err := j.run(ctx, box, rest[:n])
			if err != nil {
				return nil, err
			}
			outcomes, rest = append(outcomes, more...), rest[n:]
		}
		return outcomes, nil
	case result.Limit != "":
		return []outcome{{limit: result.Limit}}, nil
	case begun: // it ended the harness, and passed nothing
		return []outcome{{what: fmt.Sprintf("ended the harness: exit code %d", result.Exit)}}, nil
	}
	return nil, sandbox.Fail(sandbox.VerifierCrash, "verify", box.ID(), "the tests did not run: python3 ended with exit code %d: %.300q", result.Exit, result.Stderr)
}
