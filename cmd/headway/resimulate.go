package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/command"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/drive/replay"
	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/internal/parallel"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/observe/attribution"
	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/observe/report"
	"github.com/headway-rl/headway/predict/experiment"
)

// resimulateCmd says what a run would have been under other settings.
type resimulateCmd struct {
	command.Output
	Path string   `arg:"" name:"run" help:"A run directory, or a trace file."`
	Set  []string `name:"set" sep:"none" placeholder:"KEY=VALUE" help:"Change a key of the run's document, such as queue.factor=2, or what it measured, such as times.train_step=0.5. Repeatable; in every arm."`
	Arm  []string `name:"arm" sep:"none" placeholder:"'KEY=VALUE KEY=VALUE'" help:"Another setting to compare, of one or more keys. Repeatable."`
	Grid []string `name:"grid" sep:"none" placeholder:"KEY=V1,V2" help:"Compare every value of a key, all combinations if repeated. A value may be a range, as of headway simulate."`
}

// Help explains what can be asked; the command line prints it after the flags.
func (c *resimulateCmd) Help() string {
	return `A resimulation takes a run's own rollouts and train steps through the production loop
under other settings. The same recorded group plays the same group in every arm, so that arms
differ by their settings alone; each is compared with the run's own settings, resimulated.

  headway resimulate RUN                                        how well it reproduces the run
  headway resimulate RUN --set queue.factor=2
  headway resimulate RUN --arm queue.factor=2 --arm 'queue.policy=max queue.max_staleness=2'
  headway resimulate RUN --grid rollout.concurrency=64,128,256
  headway resimulate RUN --set times.train_step=0.5             twice as fast a trainer

Beside the keys of the document, factors on what was measured: times.train_step, times.decode and
times.environment; and rollout.length.cap_tokens cuts responses. docs/what-if.md says what
is assumed, and how near it came to runs.`
}

// resimulatedArm is one setting of a resimulation.
type resimulatedArm struct {
	// Set are the keys in which it differs from the run; empty for its own settings.
	Set []string `json:"set"`
	// Refused says why it was not resimulated, "" where it was. It then has no figures.
	Refused string `json:"refused,omitempty"`
	// Estimates are means with their intervals and paired differences.
	Estimates map[string]replay.Estimate `json:"estimates,omitempty"`
	Summary   *metrics.Summary           `json:"summary,omitempty"`
	// Attribution splits its staleness and idle time by source.
	Attribution *attribution.Summary `json:"attribution,omitempty"`
	Ledger      *loop.Ledger         `json:"ledger,omitempty"`
	// Extrapolated is the share of rollouts and steps that were not recorded.
	Extrapolated float64 `json:"extrapolated_ratio"`
	Steps        int     `json:"steps"`
	WarmupSteps  int     `json:"warmup_steps"`
	// Unsettled are the means of its steps that have not settled, and why.
	Unsettled []experiment.Unsettled `json:"unsettled"`
	Warnings  []string               `json:"warnings"`
	again     replay.Resimulation
	err       error
}

// resimulation is what headway resimulate --json prints. A single setting's figures stand at the top, too.
type resimulation struct {
	*metrics.Summary
	Run string `json:"run"`
	// Measured is what the run measured of itself, over the same window; MeasuredAttribution its split.
	Measured            metrics.Summary     `json:"measured"`
	MeasuredAttribution attribution.Summary `json:"measured_attribution"`
	// Settled says that all means have, measured and resimulated; Unsettled are those of the run itself that
	// have not, and why.
	Settled   bool                   `json:"settled"`
	Unsettled []experiment.Unsettled `json:"unsettled"`
	// Own are the run's own settings, resimulated: arms are compared with these.
	Own          resimulatedArm   `json:"own"`
	Arms         []resimulatedArm `json:"arms"`
	Ledger       *loop.Ledger     `json:"ledger,omitempty"`
	Extrapolated float64          `json:"extrapolated_ratio"`
	WarmupSteps  int              `json:"warmup_steps"`
	Warnings     []string         `json:"warnings"`
}

// Run resimulates and prints the result beside what the run measured.
func (c *resimulateCmd) Run(application *app.Process) error {
	sets, err := c.arms()
	if err != nil {
		return err
	}
	header, err := traceHeader(c.Path)
	if err != nil {
		return err
	}
	settings := make([]whatIf, len(sets))
	for i, set := range sets {
		if settings[i], err = parseWhatIf(header, set); err != nil {
			return err
		}
		if takes := experiment.Costly(settings[i].document); takes != "" {
			return failure.Usage("choose fewer slots", "%s", takes)
		}
	}
	ctx, stop := command.Interruptible()
	defer stop()
	doc, err := resimulate(ctx, c.Path, header, settings, meterOf(application))
	if err != nil {
		return err
	}
	if err := doc.refused(); err != nil {
		return err
	}
	if c.JSON {
		err = printJSON(application.Stdout, doc)
	} else {
		err = doc.text(application.Stdout)
	}
	return errors.Join(err, doc.verdict())
}

// arms are the settings asked for, each as its keys: those of --arm in every combination of --grid.
func (c *resimulateCmd) arms() ([][]string, error) {
	combined, all, err := experiment.Combinations(c.Grid, armsMax)
	if err != nil {
		return nil, err
	}
	if !all {
		return nil, failure.Usage("headway resimulate --help", "--grid: more than %d settings", armsMax)
	}
	given := make([][]string, 0, len(c.Arm))
	for _, arm := range c.Arm {
		keys := splitArm(arm)
		if len(keys) == 0 {
			return nil, failure.Usage("headway resimulate --help", "--arm %q: expected KEY=VALUE, or several of them with spaces between", arm)
		}
		given = append(given, keys)
	}
	if len(given) == 0 {
		given = [][]string{nil}
	}
	if len(given)*len(combined) > armsMax {
		return nil, failure.Usage("headway resimulate --help", "--arm and --grid make %d settings, at most %d", len(given)*len(combined), armsMax)
	}
	var sets [][]string
	for _, arm := range given {
		for _, keys := range combined {
			sets = append(sets, slices.Concat([]string{}, c.Set, arm, keys))
		}
	}
	return sets, nil
}

// armsMax bounds the settings of one comparison.
const armsMax = 1000

// splitArm splits at spaces outside of brackets and quotes.
func splitArm(text string) (keys []string) {
	depth, quote, from := 0, rune(0), -1
	for i, r := range text {
		switch {
		case quote != 0:
			if r == quote {
				quote = 0
			}
		case r == '"' || r == '\'':
			quote = r
		case r == '[' || r == '{':
			depth++
		case r == ']' || r == '}':
			depth--
		case r == ' ' && depth == 0:
			if from >= 0 {
				keys = append(keys, text[from:i])
			}
			from = -1
			continue
		}
		if from < 0 {
			from = i
		}
	}
	if from >= 0 {
		keys = append(keys, text[from:])
	}
	return keys
}

// resimulate makes the arms and, before them, the run's own settings.
func resimulate(ctx context.Context, path string, header trace.Header, arms []whatIf, show meter) (resimulation, error) {
	doc := resimulation{Run: path, Warnings: []string{}}
	recording, split, err := measureTrace(ctx, path, show)
	if err != nil {
		return doc, err
	}
	doc.Measured, doc.MeasuredAttribution = recording.Measured, split
	if recording.Version == 0 {
		return doc, failure.Run("let it make some train steps; headway status shows what a run waits for", "%s: no train step has ended, so that there is nothing to resimulate", path)
	}
	doc.Unsettled = unsettledAfter(recording.Series, recording.Header.Warmup)
	own, err := parseWhatIf(header, nil)
	if err != nil {
		return doc, err
	}
	if arms, err = besideOwn(own, arms); err != nil {
		return doc, err
	}
	update, clear := show.begin("train steps")
	defer clear()
	var mu sync.Mutex
	var done int64
	all := int64(0)
	for i := range arms {
		all += arms[i].steps(recording)
	}
	stepped := func() {
		mu.Lock()
		defer mu.Unlock()
		if done++; done%progressSteps == 0 {
			update(min(done, all), all)
		}
	}
	made, _, err := parallel.All(ctx, len(arms), nil, func(i int) (resimulatedArm, error) {
		return arms[i].resimulate(recording, stepped), nil
	})
	if err != nil {
		return doc, failure.Run("", "the resimulation was interrupted: %w", err)
	}
	doc.Own = made[0]
	if doc.Own.err != nil {
		return doc, doc.Own.err
	}
	if torn := tornWarning(recording); torn != "" {
		doc.Warnings = append(doc.Warnings, torn)
	}
	for i := range made {
		made[i].compare(&made[0].again, i > 0)
	}
	doc.Own, doc.Arms = made[0], made[1:]
	if len(arms) == 1 { // nothing was asked but how well it reproduces the run
		doc.Arms = []resimulatedArm{made[0]}
	}
	if len(doc.Arms) == 1 {
		one := doc.Arms[0]
		doc.Summary, doc.Ledger, doc.Extrapolated, doc.WarmupSteps = one.Summary, one.Ledger, one.Extrapolated, one.WarmupSteps
		doc.Warnings = append(doc.Warnings, one.Warnings...)
	}
	doc.Settled = doc.unsettledText() == ""
	return doc, nil
}

// besideOwn puts the run's own settings in front; a single arm that changes nothing is these.
func besideOwn(own whatIf, arms []whatIf) ([]whatIf, error) {
	if len(arms) == 1 && len(arms[0].set) == 0 {
		return []whatIf{own}, nil
	}
	for _, arm := range arms {
		if len(arm.set) == 0 {
			return nil, failure.Usage("headway resimulate --help", "an arm without a key is the run's own settings, with which all arms are compared anyway")
		}
	}
	return append([]whatIf{own}, arms...), nil
}

// refused is the error of the only arm; nil where there are several, or it has none.
func (doc *resimulation) refused() error {
	if len(doc.Arms) != 1 {
		return nil
	}
	return doc.Arms[0].err
}

// verdict is the error about arms that were refused, nil for none.
func (doc *resimulation) verdict() error {
	refused, first := 0, ""
	for _, arm := range doc.Arms {
		if arm.Refused != "" {
			if refused++; refused == 1 {
				first = strings.Join(arm.Set, " ") + ": " + arm.Refused
			}
		}
	}
	if refused == 0 {
		return nil
	}
	return failure.Run("", "%d of %s could not be resimulated, the first: %s", refused, report.Counted(len(doc.Arms), "setting"), first)
}

// traceHeader reads the header of a run's trace.
func traceHeader(path string) (trace.Header, error) {
	file, err := trace.Open(path)
	if err != nil {
		return trace.Header{}, failure.Usage("name a run directory that headway run made, or a trace file", "%w", err)
	}
	defer file.Close()
	reader, err := trace.NewReader(file)
	if err != nil {
		return trace.Header{}, failure.Usage("name a run's directory or its "+trace.FileName+", of this version of headway", "%s: %w", file.Name(), err)
	}
	return reader.Header, nil
}

// measureTrace reads what a run's rollouts, steps and syncs took, and where its staleness came
// from.
func measureTrace(ctx context.Context, path string, show meter) (*replay.Recording, attribution.Summary, error) {
	file, err := trace.Open(path)
	if err != nil {
		return nil, attribution.Summary{}, err
	}
	defer file.Close()
	var source io.Reader = file
	if info, err := file.Stat(); err == nil {
		update, clear := show.begin("MB of the trace")
		defer clear()
		source = &watchedReader{Reader: file, ctx: ctx, update: update, all: info.Size()}
	}
	var split *attribution.Observer
	recording, err := replay.Measure(source, besideTo(&split))
	if ctx.Err() != nil {
		return nil, attribution.Summary{}, failure.Run("", "interrupted")
	}
	if err != nil {
		return nil, attribution.Summary{}, replayError(file.Name(), err)
	}
	return recording, split.Summary(), nil
}

// besideTo has an attribution observe a run beside its recorder, and leaves it where it is told.
func besideTo(at **attribution.Observer) replay.Beside {
	return func(rules loop.Config, warmup loop.Version) metrics.Beside {
		o := attribution.New(rules)
		o.Warmup = warmup
		*at = o
		return o
	}
}

// watchedReader counts what is read, until its context ends.
type watchedReader struct {
	io.Reader
	ctx       context.Context
	update    func(done, all int64)
	done, all int64
}

const megabyte = 1 << 20

func (r *watchedReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := r.Reader.Read(p)
	r.done += int64(n)
	r.update(r.done/megabyte, r.all/megabyte)
	return n, err
}

// resimulateDir takes the lengths and times of a run's trace through the
// simulator, under the rules of a resolved document.
func resimulateDir(path string, document config.Config) (replay.Resimulation, error) {
	recording, _, err := measureTrace(context.Background(), path, nil)
	if err != nil {
		return replay.Resimulation{}, err
	}
	arm := whatIf{document: document}
	settings, err := arm.settings(recording.Header)
	if err != nil {
		return replay.Resimulation{}, err
	}
	again, err := recording.Resimulate(settings)
	if err != nil && !errors.Is(err, sim.ErrStalled) {
		return again, failure.Run("", "%s: %w", path, err)
	}
	if err != nil {
		return again, experiment.StallError(document, err)
	}
	return again, nil
}

// nsOf is a time in whole nanoseconds.
func nsOf(seconds float64) *int64 {
	ns := int64(math.Round(seconds * 1e9))
	return &ns
}

// sameFigure says of two figures whether they are told apart by their interval.
func sameFigure(e replay.Estimate) bool {
	return e.Difference95 == nil || e.Difference95[0] <= 0 && e.Difference95[1] >= 0
}

// signedShare prints a relative change.
func signedShare(by, of float64) string {
	if of == 0 {
		return "–"
	}
	return fmt.Sprintf("%+.1f %%", 100*by/of)
}
