package record

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/headway-rl/headway/api"
	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/app/sink"
	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/env/taskset"
	"github.com/headway-rl/headway/explain/dashboard"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/observe/steps"
	"github.com/headway-rl/headway/predict/forecast"
)

// Record holds the parts of a run, and the files and pages of it beside its log. [Record.OpenRecord] and [NewShown] make
// its fields.
type Record struct {
	*parts.Parts
	App *app.Process
	// Around is what the program around it gives.
	Around Surroundings
	Began  time.Time
	// Shown is the run as browsers see it, nil where none may.
	Shown *Shown
	Steps *StepLog
	// OnLine is called with every line of metrics.jsonl, evaluation and all, by the goroutine that owns the loop. It must
	// not block or change the line. Nil is not called.
	OnLine func(*steps.Line)
	// sinks take every train step's figures to where others are, nil where there are none; Spans are nil where none
	// are sent. Well says that the run ended without an error.
	sinks *sink.Fanout
	Spans sink.Spans
	Well  bool
	// operator is where the operator is told, nil for standard error.
	operator atomic.Pointer[func(format string, args ...any)]
	// forward is the newest verdict on the trainer's forward pass, nil before the first.
	forward     atomic.Pointer[steps.Forward]
	samples     *sampleWriter
	evaluations evaluator
	// beside plays held-out prompts with the run's environment, nil where nobody does.
	beside *beside
	// evaluated is the newest line with what it made of them, nil before the first.
	evaluated atomic.Pointer[steps.Line]
	// Expected is the prediction made before the first step; zero where there is none.
	Expected forecast.Forecast
}

// Surroundings are what a run is told of the program around it.
type Surroundings struct {
	// Program names the program and its version, for a trace.
	Program string
	// Version is the program's alone, for the API.
	Version string
	// Lines shows a run as plain lines, after an intro.
	Lines func(intro string) View
	// Pages are what browsers are shown of the run of a directory, whose trace begins with a header.
	Pages func(dir, name string, header trace.Header) dashboard.Options
	// Columns reads tasks that are stored by columns, nil for a program that has no such tasks.
	Columns taskset.Columns
	// Spans sends spans of rollouts, nil for a program that sends none.
	Spans sink.OpenSpans
}

// New begins the record of a run, whose parts are made afterwards.
func New(a *app.Process, around Surroundings) *Record {
	return &Record{App: a, Around: around, Began: a.Now()}
}

// View shows a run to the operator. Its methods do not block.
type View interface {
	// Update shows a newer state. One goroutine calls it.
	Update(Progress)
	// Message adds a line that stays.
	Message(text string)
}

// Progress is what a run shows of itself while it goes on. Figures that are not
// known yet are NaN.
type Progress struct {
	// Step is the number of train steps done, of Steps.
	Step, Steps int64
	// Version is the newest policy version that all engines serve.
	Version int64
	// Reward is the mean reward of the last batches.
	Reward float64
	// Accuracy is the last held-out greedy accuracy, AccuracyStep the version it is of.
	Accuracy     float64
	AccuracyStep int64
	// Staleness is the mean staleness of the last batches in versions, PQS and IQS its
	// two parts.
	Staleness, PQS, IQS float64
	// TrainerIdle and RolloutIdle are shares of wall time.
	TrainerIdle, RolloutIdle float64
	// ClipFraction is the share of tokens whose importance ratio left the band.
	ClipFraction float64
	// TokensPerS is the generation speed in tokens per second.
	TokensPerS float64
	// QueueGroups are ready and waiting, of QueueCapacity.
	QueueGroups, QueueCapacity int
	// Rates are those at which groups enter and leave the queue.
	Rates live.Rates
	// Control is the goal that the run keeps; nil without one.
	Control *protocol.Control
	// Active rollouts are being generated, in Slots.
	Active, Slots int
	// Elapsed is the time since the start; ETA what is left, 0 while unknown.
	Elapsed, ETA time.Duration
}

// OpenRecord opens the lines of the run's train steps, its readable samples, and the sinks of both. Lines of steps after upTo are made again.
func (r *Record) OpenRecord(upTo loop.Version) (err error) {
	if err := os.MkdirAll(filepath.Join(r.Dir, "samples"), 0o700); err != nil {
		return err
	}
	r.samples = &sampleWriter{dir: filepath.Join(r.Dir, "samples"), every: r.Cfg.Store.SamplesEvery, spell: r.Spelling(), std: r.Cfg.Trainer.NormalizeStd}
	r.OnClose(func() error {
		r.samples.writing.Wait()
		return nil
	})
	if r.Steps, err = openStepLog(r.Dir, upTo); err != nil {
		return err
	}
	for i := range r.Steps.Lines {
		r.judge(&r.Steps.Lines[i], nil)
		r.evaluates(r.Steps.Lines[i])
	}
	r.OnClose(r.Steps.Close)
	r.OnClose(func() error {
		r.closeSinks()
		return nil
	})
	return r.openSinks()
}

// Header begins the run's trace.
func (r *Record) Header() trace.Header {
	return trace.Header{Program: r.Around.Program, Source: "live", Seed: r.Cfg.Seed, Warmup: r.Warmup(), Loop: r.Rules, Config: string(r.Cfg.Public().YAML())}
}

// onStep is called by the goroutine that owns the loop; it does not block.
func (r *Record) onStep(ctx context.Context, d live.StepDone, view View) {
	line := StepLine(d)
	if before, said := r.Steps.ahead[line.Step]; said && d.Found {
		found(&line, &before)
	}
	if e := r.evaluations.take(); e != nil {
		line.HeldOutAccuracy, line.HeldOutStep, line.HeldOut = &e.Accuracy, &e.Version, e.more
	}
	r.evaluates(line)
	r.Steps.add(line)
	r.judge(&line, r.Logf)
	if r.sinks != nil {
		r.sinks.Send(sink.StepOf(&line, r.App.Now()))
	}
	r.Shown.step(&line)
	if r.OnLine != nil {
		r.OnLine(&line)
	}
	r.samples.trained(d.Point.Step, d.Report.LogRatios, func(err error) { r.Logf("samples: %v", err) })
	view.Update(r.newProgress(d))
	every, last := loop.Version(r.Cfg.Evaluate.Every), loop.Version(r.Cfg.Trainer.Steps)
	if v, evaluate := d.Point.Step, r.evaluationOf(ctx, d.Point.Step); every > 0 && evaluate != nil && v%every == 0 && v < last {
		r.evaluations.start(v, evaluate, func(err error) {
			if !errors.Is(err, context.Canceled) {
				r.Logf("evaluating version %d: %v", v, err)
			}
		})
	}
}

// judge takes the verdict of a train step on the trainer's forward pass, if it has one. What is new of it is said.
func (r *Record) judge(line *steps.Line, say func(format string, args ...any)) {
	f, judged := line.Forward()
	if !judged {
		return
	}
	before := r.forward.Load()
	f = f.After(before)
	r.forward.Store(&f)
	if say != nil && (before == nil && !f.Agrees || before != nil && (before.Agrees != f.Agrees || before.Cause != f.Cause)) {
		say("trainer: %s", f)
	}
}

// evaluates notes the evaluation of a line, if there is one by players or workers.
func (r *Record) evaluates(line steps.Line) {
	if line.HeldOut != nil {
		r.evaluated.Store(&line)
	}
}

// Evaluated is the newest evaluation by players or workers, nil before the first. Any goroutine may ask.
func (r *Record) Evaluated() *protocol.HeldOut {
	line := r.evaluated.Load()
	if line == nil {
		return nil
	}
	h := line.HeldOut
	return &protocol.HeldOut{Version: *line.HeldOutStep, Accuracy: *line.HeldOutAccuracy, Reward: h.Reward, Scored: h.Scored, Failed: h.Infra + h.Data, Oldest: h.Oldest, Newest: h.Newest}
}

// Forward is the newest verdict on the trainer's forward pass, nil before the first. Any goroutine may ask.
func (r *Record) Forward() *steps.Forward { return r.forward.Load() }

// evaluationOf evaluates a version, nil where the run cannot.
func (r *Record) evaluationOf(ctx context.Context, v loop.Version) func() (evaluation, error) {
	switch {
	case r.beside != nil:
		return func() (evaluation, error) { return r.evaluateBeside(v) }
	case r.Greedy != nil:
		return func() (evaluation, error) {
			accuracy, err := r.Evaluate(ctx, v, r.Cfg.Evaluate.Prompts)
			return evaluation{Accuracy: accuracy}, err
		}
	}
	return nil
}

// WaitEvaluations waits for the evaluation that goes on beside the run, if there is one. One that players or workers
// play is given up: they need not come any more.
func (r *Record) WaitEvaluations() {
	if r.beside != nil {
		r.beside.end()
	}
	r.evaluations.Wait()
}

// WallS is how long the run has been there, in seconds of wall time.
func (r *Record) WallS() float64 { return r.App.Now().Sub(r.Began).Seconds() }

// Intro is printed before anything is shown.
func (r *Record) Intro(resume *live.Resume) string {
	what := fmt.Sprintf("%s: %s, %d train steps, concurrency C %d, batch B %d and group S %d rollouts", r.Dir, r.Cfg.EnvironmentName(), r.Cfg.Trainer.Steps,
		r.Cfg.Rollout.Concurrency, r.Cfg.Train.Batch, r.Cfg.Rollout.GroupSize)
	if resume != nil {
		return fmt.Sprintf("%s; going on from version %d", what, resume.Loop.Version())
	}
	if words := r.Expected.String(); words != "" {
		what += "\n" + words
	}
	if r.Expected.StalenessMean == nil && len(r.Expected.Warnings) > 0 {
		what += "\n" + r.Expected.Warnings[0]
	}
	return what + "\n" + SplitWords
}

// SplitWords say what the parts of a step's staleness are called.
const SplitWords = "staleness in versions: PQS before its group was ready, IQS in the queue"

// viewWindow is how many of the last steps the progress view averages.
const viewWindow = 20

// newProgress is what the view shows after a step.
func (r *Record) newProgress(d live.StepDone) Progress {
	lines := r.Steps.Lines
	recent := lines[max(0, len(lines)-viewWindow):]
	p := Progress{Step: int64(d.Point.Step), Steps: int64(r.Cfg.Trainer.Steps), Version: int64(d.Point.Step),
		Accuracy: math.NaN(), Rates: d.Rates, QueueGroups: d.Status.QueueGroups, QueueCapacity: d.Status.QueueCapacityGroups, Elapsed: time.Duration(d.Point.TimeNS)}
	p.Control = api.ControlOf(r.Rules.Control, d.Status.Control, nil)
	if e := r.newestEvaluation(); e != nil {
		p.Accuracy, p.AccuracyStep = e.Accuracy, int64(e.Version)
	}
	for i := range d.Status.Engines {
		e := &d.Status.Engines[i]
		if e.State == "away" { // its fleet has not started it
			continue
		}
		p.Active += e.Active
		p.Slots += e.Slots
		if e.Version != loop.NoVersion {
			p.Version = min(p.Version, int64(e.Version))
		}
	}
	n := float64(len(recent))
	var span, tokens float64
	for _, line := range recent {
		p.Reward += line.Reward / n
		p.PQS += line.PQS / n
		p.IQS += line.IQS / n
		p.ClipFraction += line.ClipFraction / n
		p.TrainerIdle += line.TrainerIdleRatio * line.PeriodS
		p.RolloutIdle += line.RolloutIdleRatio * line.PeriodS
		tokens += float64(line.ResponseTokens)
		span += line.PeriodS
	}
	p.Staleness = p.PQS + p.IQS
	if span > 0 {
		p.TrainerIdle /= span
		p.RolloutIdle /= span
		p.TokensPerS = tokens / span
		p.ETA = time.Duration(span / n * float64(p.Steps-p.Step) * 1e9)
	}
	return p
}

// newestEvaluation is the last evaluation that stands in the step log.
func (r *Record) newestEvaluation() *evaluation {
	lines := r.Steps.Lines
	for i := len(lines) - 1; i >= max(0, len(lines)-1000); i-- {
		if lines[i].HeldOutAccuracy != nil {
			return &evaluation{*lines[i].HeldOutStep, *lines[i].HeldOutAccuracy, lines[i].HeldOut}
		}
	}
	return nil
}

// found makes the line of a step that is found published the one that was written as it was made. Its times are those of now.
func found(line, before *steps.Line) {
	now := *line
	*line = *before
	line.Time, line.PeriodS, line.TrainS, line.TrainerAbsentS = now.Time, now.PeriodS, now.TrainS, now.TrainerAbsentS
	line.TrainerIdleRatio, line.RolloutIdleRatio, line.QueueGroups, line.Control = now.TrainerIdleRatio, now.RolloutIdleRatio, now.QueueGroups, now.Control
}
