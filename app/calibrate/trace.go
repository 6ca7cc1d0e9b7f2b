package calibrate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/headway-rl/headway/explain/compare"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
	measure "github.com/headway-rl/headway/predict/calibrate"
)

// folded is what a trace of ours says of times and lengths.
type folded struct {
	rules                     loop.Config
	now, stepBegan, syncBegan int64
	syncing                   loop.Version // the newest that engines were told to fetch
	updated                   int64
	training                  bool
	steps, syncs, periods     series
	outside                   series
	groups                    map[loop.GroupID][]int
	order                     []loop.GroupID
	samples                   []measure.Sample
	tokens, slotS             float64
}

// ofTrace makes constants of a run of ours.
func ofTrace(path string) (measure.Findings, error) {
	file, err := trace.Open(path)
	if err != nil {
		return measure.Findings{}, failure.Usage("name a run directory that headway run made, or its trace", "--run: %w", err)
	}
	defer file.Close()
	reader, err := trace.NewReader(file)
	if err != nil {
		return measure.Findings{}, compare.TraceError(file.Name(), err)
	}
	f := &folded{rules: reader.Header.Loop, updated: -1, groups: map[loop.GroupID][]int{}}
	for {
		record, err := reader.Next()
		if errors.Is(err, io.EOF) || compare.Torn(err) {
			break
		}
		if err == nil {
			err = f.record(record)
		}
		if err != nil {
			return measure.Findings{}, compare.TraceError(file.Name(), err)
		}
	}
	return f.findings(path)
}

// record folds a line.
func (f *folded) record(r trace.Record) error {
	switch {
	case r.Event != nil:
		f.event(r.Event)
	case r.Action != nil:
		f.action(*r.Action)
	case r.Note == trace.NoteService:
		var service trace.Service
		if err := json.Unmarshal(r.Data, &service); err != nil {
			return fmt.Errorf("unreadable service note: %w", err)
		}
		for _, cell := range service.Cells {
			if cell.Active > 0 && cell.Steps > 0 && cell.NS > 0 {
				f.samples = append(f.samples, measure.Sample{Active: float64(cell.Active), SlotTokensPerS: 1e9 * float64(cell.Steps) / float64(cell.NS), Weight: float64(cell.Steps)})
			}
		}
	}
	return nil
}

// event folds an event.
func (f *folded) event(ev *trace.Event) {
	f.now = ev.Time
	switch ev.Kind {
	case loop.TrainStepEnded:
		if f.training {
			f.training = false
			f.steps.add(f.now - f.stepBegan)
		}
		if f.updated >= 0 {
			f.periods.add(f.now - f.updated)
		}
		f.updated = f.now
	case loop.RolloutScored:
		if ev.Tokens < 1 {
			return
		}
		if len(f.groups[ev.Group]) == 0 {
			f.order = append(f.order, ev.Group)
		}
		f.groups[ev.Group] = append(f.groups[ev.Group], int(ev.Tokens))
		f.tokens, f.slotS = f.tokens+float64(ev.Tokens), f.slotS+float64(ev.GenerateNS)/1e9
		f.outside.add(ev.EnvironmentNS)
	}
}

// action folds an action.
func (f *folded) action(a loop.Action) {
	switch a.Kind {
	case loop.StartTrainStep:
		f.training, f.stepBegan = true, f.now
	case loop.LoadWeights:
		if a.Version > f.syncing {
			f.syncing, f.syncBegan = a.Version, f.now
		}
	case loop.SyncCompleted:
		if a.Version == f.syncing {
			f.syncs.add(f.now - f.syncBegan)
		}
	}
}

// add adds a time in nanoseconds.
func (s *series) add(ns int64) {
	s.values, s.weights = append(s.values, float64(ns)/1e9), append(s.weights, 1)
}

// groupsKept is how many of the last groups' lengths a document has: what the policy has become.
const groupsKept = 300

// groupsMin is how many whole groups a distribution of lengths needs.
const groupsMin = 8

// findings are the constants.
func (f *folded) findings(path string) (measure.Findings, error) {
	if len(f.steps.values) < stepsMin {
		return measure.Findings{}, failure.Usage("give a longer run", "--run %s: %d train steps, want at least %d", path, len(f.steps.values), stepsMin)
	}
	l := &logFindings{found: measure.Findings{Of: []string{path + " (a run of Headway)"}}}
	if len(f.periods.values) > 0 {
		l.found.RunPeriodS, _, _ = f.periods.mean()
	}
	slots := 0
	for _, n := range f.rules.EngineSlots {
		slots += n
	}
	l.add("rollouts of a batch", "train.batch", float64(f.rules.BatchGroups*f.rules.GroupSize), 0, "the run's rules")
	l.add("rollouts of one prompt", "rollout.group_size", float64(f.rules.GroupSize), 0, "the run's rules")
	l.add("responses at once", "rollout.concurrency", float64(slots), 0, "the run's rules")
	f.steps.from, f.syncs.from = "the trace", "the trace"
	l.times("train step, s", "modelled.train.step_s", f.steps)
	l.times("weight sync, s", "modelled.sync.time_s", f.syncs)
	if mean, off, ok := f.outside.mean(); ok && mean > f.slotS/float64(len(f.outside.values))/100 {
		l.add("environment's time, s", "modelled.environment.mean_s", mean, off, fmt.Sprintf("%d rollouts, as if all took the mean", len(f.outside.values)))
	}
	f.lengths(l)
	l.found.Engines = len(f.rules.EngineSlots)
	if len(f.samples) > 0 {
		l.found.Constants = append(l.found.Constants, measure.CurveOf(f.samples))
	} else if f.slotS > 0 {
		l.add("speed of a slot, tokens/s", "modelled.decode_tokens_per_s", f.tokens/f.slotS, 0, "tokens over the time of their generation")
	}
	return l.found, nil
}

// lengths adds those of the last whole groups.
func (f *folded) lengths(l *logFindings) {
	var whole [][]int
	for _, id := range f.order {
		if group := f.groups[id]; len(group) == f.rules.GroupSize {
			whole = append(whole, group)
		}
	}
	if l.empirical(whole) == 0 {
		l.found.Notes = append(l.found.Notes, fmt.Sprintf("the run has %d whole groups: a distribution of lengths needs %d", len(whole), groupsMin))
	}
}
