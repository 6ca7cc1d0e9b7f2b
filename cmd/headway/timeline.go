package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/env/episode"
	"github.com/headway-rl/headway/env/episode/player"
	"github.com/headway-rl/headway/explain/compare"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/observe/report"
	"github.com/headway-rl/headway/observe/timeline"
)

// timelineOptions are the flags of a drawing that trace viewers read. Embedded by the
// commands that have a run at hand.
type timelineOptions struct {
	Timeline      string `placeholder:"OUT.json" help:"Draw every slot, train step and weight sync to a new file for ui.perfetto.dev or chrome://tracing."`
	TimelineSteps int    `default:"20" placeholder:"N" help:"Draw N train steps; 0 draws all, a line a rollout (default: 20)."`
	TimelineFrom  int64  `default:"-1" placeholder:"VERSION" help:"Begin to draw at this policy version (default: the end of the warm-up)."`
	// TimelineArrows is a word of arrowWords.
	TimelineArrows string `default:"last" enum:"last,all,none" placeholder:"last|all|none" help:"Draw arrows to a train step from the rollout that each of its groups waited for (default: last), from all its rollouts, or none."`
}

// check refuses what cannot be drawn.
func (o *timelineOptions) check() error {
	switch {
	case o.TimelineSteps < 0:
		return failure.Usage("0 draws all of them", "--timeline-steps %d: expected a number of train steps", o.TimelineSteps)
	case o.TimelineFrom < -1:
		return failure.Usage("0 is the start of the run", "--timeline-from %d: expected a policy version", o.TimelineFrom)
	case o.Timeline == "" && (o.TimelineSteps != 20 || o.TimelineFrom != -1 || o.TimelineArrows != "last"):
		return failure.Usage("--timeline OUT.json names the file", "--timeline-steps, --timeline-from and --timeline-arrows say what --timeline draws")
	}
	return nil
}

// arrowWords are what --timeline-arrows may be.
var arrowWords = map[string]timeline.Arrows{"last": timeline.LastArrows, "all": timeline.AllArrows, "none": timeline.NoArrows}

// timelineFile is the file being drawn. The nil timelineFile draws nothing.
type timelineFile struct {
	options timelineOptions
	file    *os.File
	drawing *timeline.Drawing
	// parts are those of a recorded run's episodes; nil for none.
	parts map[timeline.Attempt][]timeline.Part
}

// create makes the file, before anything is simulated; nil where none is asked for.
func (o timelineOptions) create() (*timelineFile, error) {
	if err := o.check(); err != nil || o.Timeline == "" {
		return nil, err
	}
	file, err := createFile("--timeline", o.Timeline)
	if err != nil {
		return nil, err
	}
	return &timelineFile{options: o, file: file}, nil
}

// begin begins the drawing of a run whose warm-up is known by now.
func (f *timelineFile) begin(title string, rules loop.Config, warmup loop.Version) {
	o := timeline.Options{Rules: rules, Title: title, From: warmup, Arrows: arrowWords[f.options.TimelineArrows]}
	if f.options.TimelineFrom >= 0 {
		o.From = loop.Version(f.options.TimelineFrom)
	}
	if f.options.TimelineSteps > 0 {
		o.To = o.From + loop.Version(f.options.TimelineSteps)
	}
	if f.parts != nil {
		o.Parts = func(a timeline.Attempt) []timeline.Part { return f.parts[a] }
	}
	f.drawing = timeline.New(f.file, o)
}

// watch has a simulation drawn, beside whatever observes it already.
func (f *timelineFile) watch(cfg *sim.Config, title string) {
	if f == nil {
		return
	}
	f.begin(title, cfg.Loop, loop.Version(cfg.Warmup))
	observe := cfg.Observe
	cfg.Observe = func(ev loop.Event, generateNS, environmentNS int64, actions []loop.Action) {
		f.drawing.Observe(ev, environmentNS, actions)
		if observe != nil {
			observe(ev, generateNS, environmentNS, actions)
		}
	}
}

// end ends the file of what ended with an error or nil. One that was not begun, that shows nothing or of
// what failed is removed.
func (f *timelineFile) end(failed error) error {
	if f == nil {
		return nil
	}
	var err error
	if f.drawing != nil {
		err = f.drawing.Close()
	}
	err = errors.Join(err, f.file.Close())
	if f.drawing == nil || failed != nil || err != nil {
		err = errors.Join(err, os.Remove(f.options.Timeline))
	}
	switch {
	case failed != nil || err == nil:
		return nil // what failed is said already
	case errors.Is(err, timeline.ErrEmpty):
		return failure.Run("name an earlier version with --timeline-from", "--timeline %s: %w", f.options.Timeline, err)
	}
	return fmt.Errorf("--timeline %s: %w", f.options.Timeline, err)
}

// drawn says what a file shows.
func (f *timelineFile) drawn() string {
	t := f.drawing.Totals()
	arrows := report.Counted(t.Arrows, "arrow")
	if t.ArrowsLeftOut > 0 {
		arrows += fmt.Sprintf(" (%s left out: no step has more than a thousand)", report.Count(t.ArrowsLeftOut))
	}
	return fmt.Sprintf("%s: %s, %s and %s over %s s, %s events; open it in ui.perfetto.dev or chrome://tracing", f.options.Timeline,
		report.Counted(t.Rollouts, "rollout"), report.Counted(t.TrainSteps, "train step"), arrows, report.Figure(seconds(t.ToNS-t.FromNS), 1), report.Count(t.Events))
}

// episodeParts are what the environments of a run's episodes were at, by attempt; nil where the run has
// no record of them. What is no part of theirs is the policy's.
func episodeParts(dir string) (map[timeline.Attempt][]timeline.Part, error) {
	var parts map[timeline.Attempt][]timeline.Part
	err := player.ReadLog(dir, func(r episode.Record) error {
		var a timeline.Attempt
		if _, err := fmt.Sscanf(r.Rollout, "g%d-s%d-a%d", &a.Group, &a.Sample, &a.Attempt); err != nil {
			return nil // an evaluation's, which has no slot
		}
		for _, s := range r.Spans {
			if s.Kind == episode.Model {
				continue
			}
			if parts == nil {
				parts = map[timeline.Attempt][]timeline.Part{}
			}
			parts[a] = append(parts[a], timeline.Part{Name: string(s.Kind), Tool: s.Name, Class: string(s.Class), FromNS: s.StartNS, ToNS: s.EndNS})
		}
		return nil
	})
	if err != nil {
		return nil, failure.Run("remove the line, or the file: the drawing then has no tools", "%w", err)
	}
	return parts, nil
}

// drawTrace draws a recorded run, whose events go through the loop again: a trace
// may lack the notices.
func drawTrace(path string, options timelineOptions) (f *timelineFile, err error) {
	if f, err = options.create(); err != nil || f == nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.end(err)) }()
	file, err := trace.Open(path)
	if err != nil {
		return f, err
	}
	defer file.Close()
	reader, err := trace.NewReader(file)
	if err != nil {
		return f, compare.TraceError(file.Name(), err)
	}
	rules := reader.Header.Loop.WithDefaults()
	machine, err := loop.New(rules)
	if err != nil {
		return f, err
	}
	if trace.Is(file.Name()) { // what lies beside any other file may be of another run
		if f.parts, err = episodeParts(filepath.Dir(file.Name())); err != nil {
			return f, err
		}
	}
	f.begin(path, rules, reader.Header.Warmup)
	for {
		record, err := reader.Next()
		switch {
		case errors.Is(err, io.EOF), compare.Torn(err):
			return f, nil // of a run that goes on, what it has written so far
		case err != nil:
			return f, compare.TraceError(file.Name(), err)
		case record.Event != nil:
			actions, _ := machine.Step(record.Event.Event)
			f.drawing.Observe(record.Event.Event, record.Event.EnvironmentNS, actions)
		}
	}
}
