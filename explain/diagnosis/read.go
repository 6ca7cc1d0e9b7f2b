package diagnosis

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/drive/replay"
	"github.com/headway-rl/headway/explain/foreign"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/observe/metrics"
)

// Options say how a diagnosis is made. The zero value makes it in full.
type Options struct {
	// Run names the run in the report.
	Run string
	// Uncovered says why no closed form covers the rules of a document, "" where one does. Nil leaves that to package
	// theory, which knows fewer rules than a document has.
	Uncovered func(config.Config) string
	// Learned is what the trainer said, by step, in order; steps may be missing.
	Learned []Learned
	// Given are fitted quantities by the names of Givable, where the caller knows better than a foreign log.
	Given map[string]float64
	// ClosedForms leaves the gain of changes to closed forms: nothing is resimulated.
	ClosedForms bool
	// Progress, if not nil, is called with what is being done and how much of it, 0 to 1.
	Progress func(what string, share float64)
}

func (o *Options) progress(what string, share float64) {
	if o.Progress != nil {
		o.Progress(what, share)
	}
}

// Givable are the quantities that may be given, by name.
var Givable = []string{"tail_multiplier", "utilization", "acceptance", "train_step_s"}

// given puts what was given in the place of what was fitted.
func (o *Options) given(fit *Fitted) {
	for i, figure := range []*foreign.Figure{&fit.TailMultiplier, &fit.Utilization, &fit.Acceptance, &fit.StepS} {
		if v, ok := o.Given[Givable[i]]; ok {
			*figure = foreign.Figure{Value: v, Origin: foreign.Given, From: "--set " + Givable[i]}
		}
	}
}

// ErrEmpty is wrapped by the error of a run that has made no train step.
var ErrEmpty = errors.New("no train step has ended")

// Opener opens a trace from its beginning, with its size in bytes, 0 where unknown. It is called several times.
type Opener func() (source io.ReadCloser, size int64, err error)

// OfTrace diagnoses a run by its trace, finished or not. It reads it as a stream, and
// resimulates what changes of the settings would give.
func OfTrace(ctx context.Context, open Opener, options Options) (Report, error) {
	first, err := readTrace(ctx, open, 0, nil, &options)
	if err != nil {
		return Report{}, err
	}
	o := first.observer
	if o.Version() == 0 {
		return Report{}, fmt.Errorf("%w: %s has nothing to judge yet", ErrEmpty, orRun(options.Run))
	}
	absences, _ := o.absences()
	settled := settle(o.recorder.Steps, o.header.Warmup, absences)
	if from := loop.Version(settled.FromStep); from != o.from {
		again, err := readTrace(ctx, open, first.bytes, &from, &options)
		if err != nil {
			return Report{}, err
		}
		o = again.observer
	}
	f := o.facts(&options)
	f.settled = settled
	f.warnings = append(f.warnings, first.warnings...)
	if settled.OK && !options.ClosedForms {
		f.again, err = first.resimulator(ctx, open, f, &options)
		if err != nil {
			f.warnings = append(f.warnings, fmt.Sprintf("not resimulated, gains are by closed forms: %v", err))
		}
	}
	return f.report(ctx)
}

func orRun(name string) string {
	if name == "" {
		return "the run"
	}
	return name
}

// readRun is a trace that was read.
type readRun struct {
	observer *observer
	// bytes is how much of its text is whole lines, 0 for all.
	bytes    int64
	warnings []string
}

// readTrace reads a trace up to bytes of its text, 0 for all there is, with the window beginning
// at from, nil for the header's.
func readTrace(ctx context.Context, open Opener, bytes int64, from *loop.Version, options *Options) (readRun, error) {
	source, size, err := open()
	if err != nil {
		return readRun{}, err
	}
	defer source.Close()
	file := &watched{ctx: ctx, source: source}
	reader, err := trace.NewReader(limited(file, bytes))
	if err != nil {
		return readRun{}, err
	}
	machine, err := loop.New(reader.Header.Loop)
	if err != nil {
		return readRun{}, &trace.Error{Line: 1, Err: fmt.Errorf("the header holds no rules a loop can run by: %w", err)}
	}
	began := reader.Header.Warmup
	if from != nil {
		began = *from
	}
	o, err := newObserver(reader.Header, began)
	if err != nil {
		return readRun{}, err
	}
	player := trace.NewPlayer(reader, machine)
	learned := options.Learned
	player.OnEvent = func(ev *trace.Event, _ int64, actions []loop.Action) {
		o.steered = metrics.ControlOf(machine, ev.Kind)
		o.Observe(ev, machine.QueueGroups(), machine.Ledger(), actions)
		if ev.Kind != loop.TrainStepEnded {
			return
		}
		for len(learned) > 0 && learned[0].Step <= ev.Version {
			o.Learn(learned[0])
			learned = learned[1:]
		}
		if size > 0 {
			options.progress("reading the trace", float64(file.read)/float64(size))
		}
	}
	player.OnNote = func(name string, data []byte) error {
		if name == trace.NotePrediction {
			return o.Predicted(data)
		}
		return nil
	}
	return readRun{observer: o, bytes: bytes}.played(player, reader)
}

// played plays the trace. A trace whose last line is half written is a run that was killed,
// or still goes on: what stands before it counts.
func (r readRun) played(player *trace.Player, reader *trace.Reader) (readRun, error) {
	err := player.Play()
	var at *trace.Error
	switch {
	case errors.As(err, &at) && at.Torn:
		r.bytes = at.Offset
		r.warnings = append(r.warnings, fmt.Sprintf("the trace ends in the middle of line %d: judged up to there", at.Line))
	case err != nil:
		return r, err
	default:
		r.bytes = reader.Offset()
	}
	tally := player.Tally()
	if tally.Difference != nil {
		return r, fmt.Errorf("recorded by %q under other rules, so that this program cannot follow it: %v", r.observer.header.Program, tally.Difference)
	}
	if !tally.Ended && at == nil {
		r.warnings = append(r.warnings, "the trace has no end note: the run goes on, or was killed")
	}
	if tally.Recoveries > 0 {
		r.warnings = append(r.warnings, fmt.Sprintf("the run was restarted %s: figures hold the time it took", times(tally.Recoveries)))
	}
	return r, nil
}

// resimulator measures the trace again, for resimulations.
func (r readRun) resimulator(ctx context.Context, open Opener, f *facts, options *Options) (*resimulator, error) {
	source, _, err := open()
	if err != nil {
		return nil, err
	}
	defer source.Close()
	options.progress("measuring its times", 0)
	recording, err := replay.Measure(limited(&watched{ctx: ctx, source: source}, r.bytes))
	if err != nil {
		return nil, err
	}
	return newResimulator(ctx, recording, f, options)
}

// limited is a trace up to so many bytes of its text, 0 for all.
func limited(source io.Reader, bytes int64) io.Reader {
	if bytes == 0 {
		return source
	}
	return io.LimitReader(trace.NewText(source), bytes)
}

// watched ends a reading with its context.
type watched struct {
	ctx    context.Context
	source io.Reader
	read   int64
}

// Read implements io.Reader.
func (w *watched) Read(p []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := w.source.Read(p)
	w.read += int64(n)
	return n, err
}
