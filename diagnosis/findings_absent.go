package diagnosis

import (
	"fmt"
	"math"
	"strings"

	"github.com/headway-rl/headway/report"
)

// spellsTold is the share of a run's time from which on spells of something that is not there are worth a finding, and
// spellsNamed how many of them are named with their times.
const (
	spellsTold  = 0.02
	spellsNamed = 3
)

// lastedS is how long the whole run has lasted so far, in seconds.
func (f *facts) lastedS() float64 { return math.Max(float64(f.own.tally.fleet.at)/1e9, 1e-9) }

// trainerAbsent: for some time nobody asked for a batch, nor trained on one.
func (f *facts) trainerAbsent() *Finding {
	if f.own == nil {
		return nil
	}
	list, now := f.own.absences()
	all := list.sums()
	share := float64(all.toNS) / 1e9 / f.lastedS()
	if share < spellsTold {
		return nil
	}
	slots := float64(f.own.header.Loop.Concurrency())
	evidence := []string{"without a batch, and not asking for one, " + list.times(f.own.tally.fleet.at),
		fmt.Sprintf("meanwhile %s of the slots stood empty, and %s groups were evicted or discarded: no setting does that", report.Share(float64(all.idleNS)/slots/float64(all.toNS)), report.Count(all.dropped)),
		"its own log says what ended it; keep it under something that starts it again. While nobody asks, headway status and the watchdog say no_trainer"}
	if now {
		evidence = append(evidence, "it is so as the trace ends: where everything waits for it nothing more is recorded")
	}
	return &Finding{Title: fmt.Sprintf("The trainer was absent %s, for %s of the run.", times(int64(len(list))), report.Share(share)), Severity: brokenOr(share),
		CostRatio: share, Evidence: evidence, Fails: "where that is the trainer's own work between two steps, such as a checkpoint or an evaluation, or it was stopped on purpose"}
}

// brokenOr is how severe it is that something was not there for a share of the run: above a tenth, other figures are
// its doing.
func brokenOr(share float64) string {
	if share > absentMost {
		return severityDefect
	}
	return severityWarning
}

// times says when they were: the longest of them where there are many. What lasts until the end is not over.
func (s spells) times(endNS int64) string {
	var parts []string
	for _, p := range s.longest(spellsNamed) {
		to := "to " + fig(float64(p.toNS)/1e9) + " s"
		if p.toNS >= endNS {
			to = "on"
		}
		parts = append(parts, fmt.Sprintf("from %s s %s", fig(float64(p.fromNS)/1e9), to))
	}
	text := strings.Join(parts, ", ")
	if more := len(s) - len(parts); more > 0 {
		text += fmt.Sprintf(" (the longest; and %s shorter)", times(int64(more)))
	}
	return text
}
