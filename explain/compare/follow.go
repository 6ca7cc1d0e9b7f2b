package compare

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/explain/dashboard"
	"github.com/headway-rl/headway/explain/diagnosis"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/observe/steps"
	"github.com/headway-rl/headway/predict/experiment"
	"github.com/headway-rl/headway/predict/forecast"
	"github.com/headway-rl/headway/predict/theory"
)

// Recorded is a run directory or a trace that is read for the dashboard.
type Recorded struct {
	file   *os.File
	tail   *tail
	reader *trace.Reader
	loop   *loop.Loop
	model  *dashboard.Model
	steps  *steps.Reader
	dir    string // of the run, "" for a trace alone
	ended  bool
	now    func() time.Time
	told   time.Time
	// cancel ends a diagnosis that is being made.
	cancel context.CancelFunc
}

// Open opens a run and reads what its trace begins with.
func Open(path string, now func() time.Time) (*Recorded, error) {
	file, err := trace.Open(path)
	if err != nil {
		return nil, failure.Usage("name a run directory that headway run made, or a trace file", "%w", err)
	}
	r := &Recorded{file: file, tail: &tail{file: file}, now: now}
	if trace.Is(file.Name()) {
		r.dir = filepath.Dir(file.Name())
	}
	if r.reader, err = trace.NewReader(r.tail); err != nil {
		return nil, errors.Join(TraceError(file.Name(), err), file.Close())
	}
	if r.loop, err = loop.New(r.reader.Header.Loop); err != nil {
		return nil, errors.Join(TraceError(file.Name(), fmt.Errorf("the header holds no rules a loop can run by: %w", err)), file.Close())
	}
	header := r.reader.Header
	opt := ViewOptions(filepath.Base(filepath.Clean(path)), header)
	opt.Info.Kind = "run"
	if header.Source == "simulation" {
		opt.Info.Kind = "simulation"
	}
	opt.Context, r.cancel = context.WithCancel(context.Background())
	opt.Diagnose = Findings(path, opt.Info.Name)
	r.model = dashboard.New(opt)
	if r.dir != "" {
		r.steps = steps.Open(r.dir)
	}
	return r, nil
}

// ViewOptions are a model's, of a run that begins with a header.
func ViewOptions(name string, header trace.Header) dashboard.Options {
	rules := header.Loop.WithDefaults()
	opt := dashboard.Options{Rules: rules, Warmup: header.Warmup, Info: dashboard.Info{
		Name: name, Program: header.Program, Config: header.Config, GroupSize: rules.GroupSize,
		BatchGroups: rules.BatchGroups, QueueGroups: rules.QueueGroups, Concurrency: rules.Concurrency(),
		SyncEvery: max(rules.SyncEvery, 1), Steps: int(rules.TrainSteps), MaxStaleness: int64(rules.MaxStaleness), WarmupSteps: int64(header.Warmup)}}
	cfg, err := config.ParseRecorded("config of the trace", []byte(header.Config))
	if err != nil {
		return opt // a trace may come without a document
	}
	if now, _, err := config.Migrate("config of the trace", []byte(header.Config)); err == nil {
		opt.Info.Config = string(now) // else the page shows what the trace has
	}
	if len(cfg.Sinks.Command) > 1 {
		opt.Info.Config = string(cfg.Shown().YAML())
	}
	cfg = cfg.WithDefaults()
	opt.Info.Task, opt.Info.Policy, opt.Info.SyncMode = cfg.EnvironmentName(), cfg.Queue.Policy, cfg.Sync.Mode
	if cfg.Schedule == "synchronous" {
		opt.Info.Policy = cfg.Schedule
	}
	if header.Source == "simulation" {
		opt.Info.Task = ""
		opt.CapTokens = int32(cfg.Modelled.Length.CapTokens)
	}
	opt.Setting = func(s metrics.Summary) (dashboard.Setting, bool) { return settingOf(cfg, header, s) }
	for i, e := range cfg.Engines {
		if i < len(rules.EngineSlots) {
			opt.Info.Engines = append(opt.Info.Engines, e.Name)
			if rules.EngineCells != nil {
				opt.Info.Cells = append(opt.Info.Cells, e.Cell)
			}
		}
	}
	return opt
}

// settingOf is a run as the closed forms have it: by what was measured or, of a simulation, by what its document says;
// false for a live run of which nothing has been measured.
func settingOf(cfg config.Config, header trace.Header, s metrics.Summary) (dashboard.Setting, bool) {
	var in theory.Input
	if header.Source != "simulation" {
		cfg = cfg.Real()
	}
	switch {
	case s.Steps > 0 && s.Utilization > 0 && s.TailMultiplier > 0:
		var unfit string
		if in, unfit = diagnosis.MeasuredInput(header.Loop, s); unfit != "" {
			return dashboard.Setting{Input: in, Uncovered: cmp.Or(experiment.Uncovered(cfg), unfit), Nearest: theory.CoversPolicy(in.Policy)}, true
		}
	case header.Source == "simulation":
		var err error
		if in, err = experiment.Input(cfg); err != nil {
			return dashboard.Setting{}, false
		}
	default:
		return dashboard.Setting{}, false
	}
	why, in, err := experiment.Covered(cfg, in)
	if err != nil {
		return dashboard.Setting{}, false
	}
	return dashboard.Setting{Input: in, Uncovered: why}, true
}

// Close ends the reading of a run, and a diagnosis that is being made.
func (r *Recorded) Close() {
	r.cancel()
	r.file.Close()
	if r.steps != nil {
		r.steps.Close()
	}
}

// Model is what has been read of the run, as a browser sees it.
func (r *Recorded) Model() *dashboard.Model { return r.model }

// tellEvery is how often a run that is read says how far it is.
const tellEvery = 200 * time.Millisecond

// Follow takes the trace into the model, and follows a run that still goes on until the context ends.
func (r *Recorded) Follow(ctx context.Context) {
	r.tail.wait = func() error { return r.atEnd(ctx) }
	info, err := r.file.Stat()
	if err != nil {
		r.model.End(err.Error())
		return
	}
	measured := metrics.Measured{}
	if r.dir != "" {
		dashboard.ReadSamples(r.dir, r.model)
	}
	player := trace.NewPlayer(r.reader, r.loop)
	player.OnEvent = func(ev *trace.Event, seq int64, actions []loop.Action) {
		r.ended = false // it was stopped there, and has been resumed
		measured = metrics.Measured{QueueGroups: r.loop.QueueGroups(), VersionTokens: ev.VersionTokens, EnvironmentNS: ev.EnvironmentNS,
			Spans: ev.Spans, Resumed: ev.Resumed, StateLag: ev.StateLag, Control: metrics.ControlOf(r.loop, ev.Kind)}
		r.model.Observe(&ev.Event, &measured, actions)
		if ev.Kind == loop.TrainStepEnded {
			r.figures(ev.Version)
		}
		if seq%1024 != 0 {
			return
		}
		if now := r.now(); now.Sub(r.told) > tellEvery {
			r.told = now
			r.tell(dashboard.Reading{Bytes: r.tail.read, Of: max(info.Size(), r.tail.read)})
		}
	}
	player.OnNote = r.note
	err = player.Play()
	r.finish(ctx, player.Tally(), err)
}

// tell has the model show what has been read so far.
func (r *Recorded) tell(how dashboard.Reading) {
	r.model.SetStatus(r.loop.Status())
	r.model.SetReading(how)
	r.model.Tell()
}

// errFollow ends the following of a run.
var errFollow = errors.New("no longer followed")

// atEnd waits for more of a trace; its error is io.EOF once there will be none.
func (r *Recorded) atEnd(ctx context.Context) error {
	if r.ended {
		return io.EOF
	}
	r.tell(dashboard.Reading{})
	select {
	case <-ctx.Done():
		return errFollow
	case <-time.After(tellEvery):
		return nil
	}
}

// note takes the notes that say something to a viewer.
func (r *Recorded) note(name string, data []byte) error {
	switch name {
	case trace.NoteEnd:
		r.ended = true
	case trace.NotePrediction:
		var p forecast.Forecast
		if json.Unmarshal(data, &p) == nil {
			r.expected(p)
		}
	}
	return nil
}

// expected takes what was predicted before the first step.
func (r *Recorded) expected(p forecast.Forecast) {
	r.model.Expect(dashboard.Predicted{BeforeMean: p.StalenessMean, PQS: p.PQS, IQS: p.IQS, PeriodS: p.PeriodS})
}

// figures takes what the trainer said of the steps up to a version.
func (r *Recorded) figures(upTo loop.Version) {
	if r.steps == nil {
		return
	}
	for line := r.steps.Next(upTo); line != nil; line = r.steps.Next(upTo) {
		r.model.Figures(dashboard.ShownFigures(line))
	}
}

// finish says how the reading ended.
func (r *Recorded) finish(ctx context.Context, tally trace.Tally, err error) {
	r.model.SetStatus(r.loop.Status())
	switch {
	case errors.Is(err, errFollow) || ctx.Err() != nil:
		r.model.End("")
	case err != nil:
		r.model.End(TraceError(r.file.Name(), err).Error())
	case tally.Difference != nil:
		r.model.End(fmt.Sprintf("the trace was written by %s under other rules: %v", r.reader.Header.Program, tally.Difference))
	default:
		r.figures(r.loop.Version())
		r.model.End("")
	}
}

// tail reads a file that may still grow: at its end it waits.
type tail struct {
	file *os.File
	// read is how many bytes have been read.
	read int64
	// wait returns nil when there may be more; nil ends at the end of the file.
	wait func() error
}

// Read implements io.Reader.
func (t *tail) Read(into []byte) (int, error) {
	for {
		n, err := t.file.Read(into)
		t.read += int64(n)
		if n > 0 || !errors.Is(err, io.EOF) || t.wait == nil {
			return n, err
		}
		if err := t.wait(); err != nil {
			return 0, err
		}
	}
}
