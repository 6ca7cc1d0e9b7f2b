package compare

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/headway-rl/headway/drive/replay"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/estimate"
	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/observe/report"
	"github.com/headway-rl/headway/predict/experiment"
)

// tornWarning says of a trace that ends in the middle of a line how far it counts, "" for a whole one.
func tornWarning(recording *replay.Recording) string {
	if recording.Torn == 0 {
		return ""
	}
	return fmt.Sprintf("the trace ends in the middle of line %d: measured up to there", recording.Torn)
}

// unsettledAfter says which means over the steps after a warm-up have not settled, and why.
func unsettledAfter(series []metrics.Step, warmup loop.Version) []experiment.Unsettled {
	return append([]experiment.Unsettled{}, experiment.SettlingOf(experiment.Window(series, int(warmup))).Unsettled...)
}

// unsettledText says which of the figures of a resimulation are of a window that cannot be judged, and
// for how many more train steps the run should go on; "" where all can.
func (doc *Resimulation) unsettledText(columns int) string {
	var lines, said []string
	add := func(name string, unsettled []experiment.Unsettled) {
		if len(unsettled) == 0 {
			return
		}
		why := experiment.WhyUnsettled(unsettled) + moreSteps(unsettled)
		if !slices.Contains(said, why) { // of one window: no need to say it of every setting
			said, lines = append(said, why), append(lines, report.Indented("  - ", name+": "+why, columns))
		}
	}
	add("the run itself", doc.Unsettled)
	if doc.Own.Refused == "" {
		add("its own settings, resimulated", doc.Own.Unsettled)
	}
	for _, arm := range doc.Arms {
		if arm.Refused == "" && len(arm.Set) > 0 {
			add(strings.Join(arm.Set, " "), arm.Unsettled)
		}
	}
	if len(lines) == 0 {
		return ""
	}
	return "NOT SETTLED: the means below are of this window alone\n" + strings.Join(lines, "") + "\n"
}

// moreSteps says about how many more steps settle all of them, "" where none can be said.
func moreSteps(unsettled []experiment.Unsettled) string {
	more := 0.0
	for _, u := range unsettled {
		if u.MoreSteps == nil {
			return ""
		}
		more = math.Max(more, *u.MoreSteps)
	}
	return fmt.Sprintf("; about %s steps more should do", report.Count(estimate.Rounded(more)))
}
