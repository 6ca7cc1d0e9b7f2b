package diagnosis

import (
	"fmt"
	"math"
	"strings"

	"github.com/headway-rl/headway/observe/report"
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

// trainStepsLong: some train steps took many times as long as a period usually does.
func (f *facts) trainStepsLong() *Finding {
	if f.own == nil {
		return nil
	}
	list := f.own.longSteps()
	share := float64(list.sums().toNS) / 1e9 / f.lastedS()
	if share < spellsTold || len(list) >= absencesMany {
		return nil
	}
	first := list.longest(1)[0]
	return &Finding{Title: fmt.Sprintf("A train step took far longer than others %s, for %s of the run.", times(int64(len(list))), report.Share(share)), Severity: brokenOr(share), CostRatio: share,
		Evidence: []string{"a batch was at the trainer " + list.times(f.own.tally.fleet.at), fmt.Sprintf("the longest was to make version %s, and %s groups were evicted or discarded during these", report.Count(int64(first.version)+1), report.Count(list.sums().dropped)),
			"the trainer's log of that time says what it did: a step that hangs keeps its batch for as long as its process says that it is there"},
		Fails: "where such a step does more than train, such as a checkpoint or an evaluation, or the machine was suspended"}
}

// trainStepsFailed: steps that ended without a version, and were tried again.
func (f *facts) trainStepsFailed() *Finding {
	if f.own == nil || f.own.attendance.failed == 0 {
		return nil
	}
	a := &f.own.attendance
	share := float64(a.failedNS) / 1e9 / f.lastedS()
	return &Finding{Title: fmt.Sprintf("Train steps failed %s.", times(a.failed)), Severity: brokenOr(share), CostRatio: share,
		Evidence: []string{fmt.Sprintf("beside %s that made a version; what failed took %s of the run, and was done again", report.Count(int64(f.own.Version())), report.Share(share)),
			"its error is in the trainer's log; the run ends with failures.train_attempts of one batch"}}
}

// lateness is which engines waited long for weights, and what of it is told.
type lateness struct {
	who    []string
	worst  spells
	share  float64 // of the run, of the engine that waited longest
	failed int64
}

func (f *facts) lateness() (l lateness) {
	for i := range f.own.deliveries.engines {
		list := f.own.late(i)
		all := list.sums()
		share := float64(all.toNS) / 1e9 / f.lastedS()
		if share < spellsTold {
			continue
		}
		l.who, l.failed = append(l.who, f.engineName(i)), l.failed+all.failed
		if share > l.share {
			l.worst, l.share = list, share
		}
	}
	return l
}

// weightsLate: engines that were told of new weights did not get them for long.
func (f *facts) weightsLate() *Finding {
	if f.own == nil {
		return nil
	}
	l, engines := f.lateness(), len(f.own.deliveries.engines)
	if len(l.who) == 0 {
		return nil
	}
	evidence := []string{fmt.Sprintf("%d of %d engines: %s", len(l.who), engines, strings.Join(l.who[:min(len(l.who), 5)], ", ")),
		fmt.Sprintf("the one that waited longest %s %s, and %s versions were made meanwhile", l.worst.doing(), l.worst.times(f.own.tally.fleet.at), report.Count(int64(l.worst.sums().made)))}
	if l.failed > 0 {
		evidence = append(evidence, fmt.Sprintf("a load or a switch failed %s meanwhile: the control plane's log says why", times(l.failed)))
	}
	switch {
	case engines == 1:
	case len(l.who) == engines:
		evidence = append(evidence, "all engines point at where the weights come from: the sender (weights: distributed), or the disk or network that they share")
	default:
		evidence = append(evidence, "the others had theirs in time: it is these engines, or their road to the weights")
	}
	return &Finding{Title: fmt.Sprintf("New weights did not reach engines for long: %s, %s of the run.", times(int64(len(l.worst))), report.Share(l.share)), Severity: brokenOr(l.share),
		CostRatio: l.share * float64(len(l.who)) / float64(engines), Evidence: evidence, Fails: "where engines or their sender were stopped on purpose"}
}

// doing says what an engine was at.
func (s spells) doing() string {
	for _, p := range s {
		if !p.switching {
			return "was loading"
		}
	}
	return "had them, and was switching,"
}

// engineName is an engine's name in the document, its number where it has none.
func (f *facts) engineName(i int) string {
	if i < len(f.own.engines) && f.own.engines[i] != "" {
		return f.own.engines[i]
	}
	return fmt.Sprintf("engine %d", i)
}

// endingSays is what a standstill waited for, in words.
var endingSays = map[ending]string{
	endedOutside:    "with a rollout that had been outside its engine: tools, sandboxes, verifiers, or workers that were not there",
	endedFirst:      "with a first token: no worker had taken the rollout on, or its engine stood",
	endedLimit:      "with a rollout that ran into a limit on time",
	endedGenerating: "with a rollout that had been generating: its engine stood",
}

// rolloutsStood: slots held rollouts, and nothing was heard of any.
func (f *facts) rolloutsStood() *Finding {
	if f.own == nil {
		return nil
	}
	list := f.own.standstills()
	all := list.sums()
	share := float64(all.toNS) / 1e9 / f.lastedS()
	if share < spellsTold {
		return nil
	}
	evidence := []string{"none started, made its first token or ended " + list.times(f.own.tally.fleet.at)}
	ended := map[ending]int64{}
	for _, p := range list {
		if p.toNS < f.own.tally.fleet.at {
			ended[p.ending]++
		}
	}
	for _, e := range []ending{endedOutside, endedFirst, endedLimit, endedGenerating} {
		if n := ended[e]; n > 0 {
			evidence = append(evidence, fmt.Sprintf("%s it was over %s", times(n), endingSays[e]))
		}
	}
	return &Finding{Title: fmt.Sprintf("Rollouts stood still %s, for %s of the run, all of them.", times(int64(len(list))), report.Share(share)), Severity: brokenOr(share),
		CostRatio: share, Evidence: evidence, Fails: "where engines evaluated the policy meanwhile, or a single long rollout was all there was to wait for"}
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
