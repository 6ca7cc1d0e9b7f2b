package diagnosis

import (
	"fmt"
	"math"
	"strings"

	"github.com/headway-rl/headway/observe/estimate"
	"github.com/headway-rl/headway/observe/report"
)

// Bounds of what is healthy.
const (
	littleMost    = 0.01
	skewShareMost = 0.25
	failuresMost  = 0.01
	clipHealthy   = 0.05
	clipWorkable  = 0.15
	clipBroken    = 0.25
	ratioHealthy  = 0.05
	truncatedTold = 0.05
	wasteMost     = 0.1
)

// ledgerUnbalanced: attempts were lost or counted twice.
func (f *facts) ledgerUnbalanced() *Finding {
	if f.own == nil || f.own.unbalanced == 0 {
		return nil
	}
	return &Finding{Title: "The ledger does not balance: rollouts were lost or counted twice.", Severity: severityDefect,
		Evidence: []string{fmt.Sprintf("first at event %d: %+v", f.own.unbalanced, f.own.ledger)}}
}

// littleMismatch: staleness and the updates that groups lived through are two counts of one thing.
func (f *facts) littleMismatch() *Finding {
	if f.attribution == nil || f.attribution.Little.Mismatch <= littleMost {
		return nil
	}
	l := f.attribution.Little
	return &Finding{Title: "Staleness is not what the groups lived through: stamps are wrong, or groups vanish on the way.", Severity: severityDefect,
		Evidence: []string{fmt.Sprintf("%s versions by the stamps, %s by the updates that trained groups were open or queued at: %s apart",
			report.Count(l.Staleness), report.Count(l.Lived), report.Share(l.Mismatch))}}
}

// versionSkew: engines serve different versions for much of the time.
func (f *facts) versionSkew() *Finding {
	if f.own == nil || len(f.own.header.Loop.EngineSlots) < 2 {
		return nil
	}
	fleet := &f.own.tally.fleet
	share, skew := fleet.figures()
	rolling := f.own.header.Loop.RollingSwitch
	if fleet.skewMax == 0 || share <= skewShareMost && fleet.skewMax <= 1 {
		return nil
	}
	found := &Finding{Title: "Engines serve different versions.", Severity: severityWarning, CostVersions: share * skew / 2,
		Evidence: []string{fmt.Sprintf("for %s of the time they differ, by %s versions then and %d at most", report.Share(share), fig(skew), fleet.skewMax)},
		Fails:    "where syncs are switched engine by engine on purpose: then up to one version is the price of never standing still"}
	if rolling {
		after := math.Max(f.staleness.or(0)-found.CostVersions, 0)
		found.Change = &Change{Set: "sync.switch=fleet", Overrides: []string{"sync.switch=fleet"}, StalenessMean: after, Gain: 1 - after/math.Max(f.staleness.or(0), 1e-9), PeriodRatio: 1,
			Method: methodClosedForm, Price: "the slowest engine decides when all switch"}
	} else {
		found.Severity = severityDefect
		found.Evidence = append(found.Evidence, "all engines are to switch together: one that lags reloads, was lost, or its syncs fail")
	}
	return found
}

// environmentFailures: sandboxes, tools, verifiers.
func (f *facts) environmentFailures() *Finding {
	if f.own == nil {
		if f.failed.or(0) <= failuresMost {
			return nil
		}
		return &Finding{Title: fmt.Sprintf("%s of the rollouts failed.", report.Share(f.failed.value)), Severity: severityWarning, CostRatio: f.failed.value,
			Evidence: []string{"the log counts them; it does not say why"}}
	}
	failures, ended := f.own.summary.Failures, f.own.attempts()
	lost := float64(failures.Environment + failures.Timeout + failures.Other)
	if ended == 0 || lost/ended <= failuresMost {
		return nil
	}
	s := f.own.summary.Services
	evidence := []string{fmt.Sprintf("%s of the attempts: %d by the environment, %d by a limit on time, %d otherwise", report.Share(lost/ended), failures.Environment, failures.Timeout, failures.Other)}
	if s.SandboxFailures+s.SandboxTimeouts+s.SandboxesLost > 0 {
		evidence = append(evidence, fmt.Sprintf("sandboxes: %d of %d starts failed, %d took too long, %d died under their rollout", s.SandboxFailures, s.SandboxStarts, s.SandboxTimeouts, s.SandboxesLost))
	}
	return &Finding{Title: "Rollouts fail in their environment.", Severity: brokenOr(lost / ended), CostRatio: lost / ended, Evidence: evidence,
		Fails: "where what fails is what the policy wrote: a crash of its own program is a result, and no failure"}
}

// attempts counts those that were scored or failed.
func (o *own) attempts() float64 {
	ended := 0.0
	for i := range o.rows {
		ended += float64(o.rows[i].scored + o.rows[i].failed)
	}
	return ended
}

// brokenTasks: rollouts that nobody can score, whatever machines do.
func (f *facts) brokenTasks() *Finding {
	if f.own == nil || f.own.attempts() == 0 {
		return nil
	}
	lost := float64(f.own.summary.Failures.Data)
	share := lost / f.own.attempts()
	if share <= failuresMost {
		return nil
	}
	return &Finding{Title: "Tasks cannot be played or judged.", Severity: brokenOr(share), CostRatio: share,
		Evidence: []string{fmt.Sprintf("%s of the attempts: %s failed by their task, such as one without an answer; none is tried again", report.Share(share), report.Count(int64(lost)))},
		Fails:    "where an environment says so of what is only slow or away: such a failure is the infrastructure's, and is tried again"}
}

// forwardPass: trainer and engines do not compute the same, by the newest batch that could tell.
func (f *facts) forwardPass() *Finding {
	if f.own == nil || f.own.forwards.judged == 0 || f.own.forwards.newest.Agrees {
		return nil
	}
	all := f.own.forwards
	return &Finding{Title: "The trainer's forward pass is not the engines': it learns from wrong ratios.", Severity: severityDefect, Evidence: []string{all.newest.Says,
		fmt.Sprintf("%d of %s that could be judged disagree", all.disagree, report.Counted(all.judged, "train step"))},
		Fails: "where engines compute in fewer bits on purpose, and a correction is to take the difference"}
}

// persistentLogRatio: trainer and rollouts disagree in one direction, step after step.
func (f *facts) persistentLogRatio() *Finding {
	if len(f.logRatios) < stepsMin {
		return nil
	}
	v := estimate.OfSeries(f.logRatios)
	if !(math.Abs(v.Mean) > ratioHealthy) || !(math.Abs(v.Mean) > orZero(v.Half)) {
		return nil
	}
	found := &Finding{Title: "The trainer's log-probabilities differ from the rollouts' in one direction, step after step.", Severity: severityWarning,
		Evidence: []string{fmt.Sprintf("mean log-ratio %+.3f ± %.3f over %d steps; healthy is within ±%.2f", v.Mean, orZero(v.Half), len(f.logRatios), ratioHealthy)},
		Fails:    "where a correction (truncated or masked ratios) is meant to take it: then its masked share says what it costs"}
	if f.staleness.or(0) < 0.5 {
		found.Severity = severityDefect
		found.Evidence = append(found.Evidence, fmt.Sprintf("with a mean staleness of %s it is no lag: check that syncs arrive, and that engine and trainer compute the same numbers", fig(f.staleness.or(0))))
	} else {
		found.Evidence = append(found.Evidence, "lower the staleness by one of the changes found here, or check that syncs arrive")
	}
	return found
}

// clipFraction beyond what is healthy.
func (f *facts) clipFraction() *Finding {
	if !f.clip.known || f.clip.value <= clipHealthy {
		return nil
	}
	severity, word := severityWarning, "workable"
	switch {
	case f.clip.value > clipBroken:
		severity, word = severityDefect, "the estimator is broken"
	case f.clip.value > clipWorkable:
		word = "bad"
	}
	evidence := []string{fmt.Sprintf("%s of the tokens have a ratio outside the band: %s (healthy under %s, workable under %s, broken over %s)", report.Share(f.clip.value), word,
		report.Share(clipHealthy), report.Share(clipWorkable), report.Share(clipBroken))}
	if f.ess.known && f.ess.value > 0 {
		evidence = append(evidence, "effective sample size "+report.Share(f.ess.value))
	}
	return &Finding{Title: "Training is far off policy.", Severity: severity, CostRatio: f.clip.value, Evidence: evidence,
		Fails: "with losses made for stale tokens, which take ratios far from 1"}
}

// wasted: what was generated and never trained.
func (f *facts) wasted() *Finding {
	share, parts := f.wasteOfLog()
	if f.own != nil {
		share, parts = f.own.waste()
	}
	if share <= wasteMost {
		return nil
	}
	found := &Finding{Title: fmt.Sprintf("%s of what is generated is never trained on.", report.Share(share)), Severity: severityCost, CostRatio: share,
		Evidence: []string{strings.Join(parts, ", ")}, Change: f.lessWaste(),
		Fails: "where engines cost nothing, or an evicted group's slot would stand empty: a queue that drops trades waste for fresh groups"}
	if absent := f.droppedAbsent(); absent >= wasteMost {
		found.CostRatio *= 1 - absent
		found.Evidence = append(found.Evidence, fmt.Sprintf("%s of the groups that were evicted or discarded were so while the trainer was absent: that part is no setting's doing", report.Share(absent)))
	}
	return found
}

// waste is the share of the tokens that were never trained on, and what became of them.
func (w *own) waste() (share float64, parts []string) {
	s := w.summary.Waste
	all := float64(s.TrainedTokens + s.EvictedTokens + s.DiscardedTokens + s.FilteredTokens + s.PrunedTokens + s.CancelledTokens + s.FailedTokens)
	for _, p := range []struct {
		what   string
		tokens int64
	}{{"evicted by a full queue", s.EvictedTokens}, {"over the staleness budget", s.DiscardedTokens}, {"filtered", s.FilteredTokens},
		{"pruned", s.PrunedTokens}, {"cancelled", s.CancelledTokens}, {"failed", s.FailedTokens}} {
		if float64(p.tokens) > 0.01*all {
			parts = append(parts, fmt.Sprintf("%s %s", report.Share(float64(p.tokens)/all), p.what))
		}
	}
	return s.WastedShare, parts
}

// wasteOfLog is the same of groups or rollouts, as far as a log counts them.
func (f *facts) wasteOfLog() (share float64, parts []string) {
	for _, p := range []struct {
		what string
		m    measured
	}{{"dropped", f.dropped}, {"filtered", f.filtered}} {
		if p.m.or(0) > 0 {
			parts = append(parts, fmt.Sprintf("%s %s", report.Share(p.m.value), p.what))
		}
	}
	return f.dropped.or(0) + f.filtered.or(0), parts
}

// droppedAbsent is the share of the groups evicted or discarded in the window that were so while the trainer was absent.
func (f *facts) droppedAbsent() float64 {
	if f.own == nil {
		return 0
	}
	e := f.own.summary.Waste.GroupsEnded
	list, _ := f.own.absences()
	all := list.within(f.own.steps).sums()
	return math.Min(float64(all.dropped)/math.Max(float64(e.Evicted+e.Discarded), 1), 1)
}

// truncatedShare: rollouts at the length cap.
func (f *facts) truncatedShare() *Finding {
	if f.truncated.or(0) <= truncatedTold {
		return nil
	}
	return &Finding{Title: fmt.Sprintf("%s of the rollouts are cut at the length cap.", report.Share(f.truncated.value)), Severity: severityWarning,
		Evidence: []string{"a cut answer has no end to judge: its reward says little"}, Fails: "where answers beyond the cap are known to be wrong"}
}

// resumedRollouts: state lag, and whether resumed rollouts are worth as much.
func (f *facts) resumedRollouts() *Finding {
	if f.own == nil {
		return nil
	}
	p := f.own.summary.Partial
	if p.ResumedRatio < 0.02 || p.StateLagMean == 0 && (p.RewardResumed == 0 || p.RewardFresh == 0) {
		return nil
	}
	worse := p.RewardFresh - p.RewardResumed
	if worse < 0.05*math.Abs(p.RewardFresh) && p.StateLagMean < 1 {
		return nil
	}
	return &Finding{Title: "Resumed rollouts continue from states that an older policy made.", Severity: severityWarning, CostRatio: p.ResumedRatio * math.Max(worse, 0) / math.Max(math.Abs(p.RewardFresh), 1e-9),
		Evidence: []string{fmt.Sprintf("%s of the rollouts were resumed, their state lags by %s versions (%d at most)", report.Share(p.ResumedRatio), fig(p.StateLagMean), p.StateLagMax),
			fmt.Sprintf("reward %s resumed, %s fresh", report.Figure(p.RewardResumed, 3), report.Figure(p.RewardFresh, 3))},
		Fails: "long rollouts are interrupted more often than short ones: part of the difference may be their difficulty"}
}

// drifting are the changes of the workload that lead to something.
func (f *facts) drifting() []Finding {
	var list []Finding
	for _, d := range f.drift {
		if !d.Sure || d.Means == "" {
			continue
		}
		worse := d.What == driftTail && d.Last > d.First || d.What == driftLength && d.Last > d.First ||
			(d.What == driftSolve || d.What == driftAcceptance) && d.Last < d.First || d.What == driftStep && d.Last > d.First
		if !worse {
			continue
		}
		list = append(list, Finding{Code: "drift_" + d.What, Title: fmt.Sprintf("The %s moves from %s to %s.", driftWords[d.What].name, driftFig(d.What, d.First), driftFig(d.What, d.Last)),
			Severity: severityWarning, Evidence: []string{d.Means}, Fails: "where the prompts changed, not the policy"})
	}
	return list
}
