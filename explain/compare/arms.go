package compare

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"

	"github.com/headway-rl/headway/drive/replay"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/internal/parallel"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/observe/attribution"
	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/observe/report"
	"github.com/headway-rl/headway/predict/experiment"
)

// Arm is one setting of a resimulation.
type Arm struct {
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

// Resimulation is what headway resimulate --json prints. A single setting's figures stand at the top, too.
type Resimulation struct {
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
	Own          Arm          `json:"own"`
	Arms         []Arm        `json:"arms"`
	Ledger       *loop.Ledger `json:"ledger,omitempty"`
	Extrapolated float64      `json:"extrapolated_ratio"`
	WarmupSteps  int          `json:"warmup_steps"`
	Warnings     []string     `json:"warnings"`
}

// Resimulate makes the arms and, before them, the run's own settings.
func Resimulate(ctx context.Context, path string, header trace.Header, arms []WhatIf, show Meter) (Resimulation, error) {
	doc := Resimulation{Run: path, Warnings: []string{}}
	recording, split, err := Measure(ctx, path, show)
	if err != nil {
		return doc, err
	}
	doc.Measured, doc.MeasuredAttribution = recording.Measured, split
	if recording.Version == 0 {
		return doc, failure.Run("let it make some train steps; headway status shows what a run waits for", "%s: no train step has ended, so that there is nothing to resimulate", path)
	}
	doc.Unsettled = unsettledAfter(recording.Series, recording.Header.Warmup)
	own, err := ParseWhatIf(header, nil)
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
		if done++; done%stepsPerLook == 0 {
			update(min(done, all), all)
		}
	}
	made, _, err := parallel.All(ctx, len(arms), nil, func(i int) (Arm, error) {
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
		doc.Arms = []Arm{made[0]}
	}
	if len(doc.Arms) == 1 {
		one := doc.Arms[0]
		doc.Summary, doc.Ledger, doc.Extrapolated, doc.WarmupSteps = one.Summary, one.Ledger, one.Extrapolated, one.WarmupSteps
		doc.Warnings = append(doc.Warnings, one.Warnings...)
	}
	doc.Settled = doc.unsettledText(report.NarrowColumns) == ""
	return doc, nil
}

// besideOwn puts the run's own settings in front; a single arm that changes nothing is these.
func besideOwn(own WhatIf, arms []WhatIf) ([]WhatIf, error) {
	if len(arms) == 1 && len(arms[0].set) == 0 {
		return []WhatIf{own}, nil
	}
	for _, arm := range arms {
		if len(arm.set) == 0 {
			return nil, failure.Usage("headway resimulate --help", "an arm without a key is the run's own settings, with which all arms are compared anyway")
		}
	}
	return append([]WhatIf{own}, arms...), nil
}

// Refused is the error of the only arm; nil where there are several, or it has none.
func (doc *Resimulation) Refused() error {
	if len(doc.Arms) != 1 {
		return nil
	}
	return doc.Arms[0].err
}

// Verdict is the error about arms that were refused, nil for none.
func (doc *Resimulation) Verdict() error {
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

// nsOf is a time in whole nanoseconds.
func nsOf(seconds float64) *int64 {
	ns := int64(math.Round(seconds * 1e9))
	return &ns
}

// stepsPerLook is how many train steps pass between two looks at the clock.
const stepsPerLook = 32

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
