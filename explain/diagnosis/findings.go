package diagnosis

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/headway-rl/headway/observe/report"
)

// Severities.
const (
	severityCost    = "cost"
	severityWarning = "warning"
	severityDefect  = "defect"
)

// check looks for one kind of finding.
type check struct {
	code string
	// always: it needs no steady state.
	always bool
	find   func(*facts) []Finding
}

// checks are all of them. Each code is documented in docs/reference/findings.md.
var checks = []check{
	{"ledger_unbalanced", true, one((*facts).ledgerUnbalanced)},
	{"little_mismatch", true, one((*facts).littleMismatch)},
	{"version_skew", true, one((*facts).versionSkew)},
	{"trainer_absent", true, one((*facts).trainerAbsent)},
	{"train_steps_long", true, one((*facts).trainStepsLong)},
	{"train_steps_failed", true, one((*facts).trainStepsFailed)},
	{"weights_late", true, one((*facts).weightsLate)},
	{"rollouts_stood", true, one((*facts).rolloutsStood)},
	{"engines_lost", true, one((*facts).enginesLost)},
	{"engine_slow", true, one((*facts).engineSlow)},
	{"environment_failures", true, one((*facts).environmentFailures)},
	{"broken_tasks", true, one((*facts).brokenTasks)},
	{"forward_pass", true, one((*facts).forwardPass)},
	{"log_ratio", true, one((*facts).persistentLogRatio)},
	{"clip_fraction", true, one((*facts).clipFraction)},
	{"budget_cannot_bind", true, one((*facts).budgetCannotBind)},
	{"waste", true, one((*facts).wasted)},
	{"truncated", true, one((*facts).truncatedShare)},
	{"resumed_rollouts", true, one((*facts).resumedRollouts)},
	{"drift", true, (*facts).drifting},
	{"target_unreachable", true, one((*facts).targetUnreachable)},
	{"target_missed", true, one((*facts).targetMissed)},
	{"target_oscillating", true, (*facts).targetSwings},
	{"target_silent", true, one((*facts).targetSilent)},

	{"dominant_source", false, one((*facts).dominantSource)},
	{"queue_factor_one", false, one((*facts).queueFactorOne)},
	{"newest_and_hold", false, one((*facts).newestAndHold)},
	{"tail", false, one((*facts).longTail)},
	{"concurrency", false, one((*facts).concurrency)},
	{"target_binds", false, one((*facts).targetBinds)},
	{"batch_against_staleness", false, one((*facts).batchAgainstStaleness)},
	{"staleness_budget", false, one((*facts).stalenessBudget)},
	{"inner_steps", false, one((*facts).innerSteps)},
	{"sync_time", false, one((*facts).syncTime)},
	{"environment_time", false, one((*facts).environmentTime)},
	{"move_to_trainer", false, one((*facts).moveToTrainer)},
	{"move_to_rollout", false, one((*facts).moveToRollout)},
	{"starved", false, one((*facts).starved)},
	{"phase_locked", false, one((*facts).phaseLocked)},
}

// one is a check that finds one thing, or nothing.
func one(find func(*facts) *Finding) func(*facts) []Finding {
	return func(f *facts) []Finding {
		if found := find(f); found != nil {
			return []Finding{*found}
		}
		return nil
	}
}

// report judges the facts.
func (f *facts) report(ctx context.Context) (Report, error) {
	f.interpret()
	r := Report{Run: f.run, Source: f.source, Settled: f.settled, Fitted: f.fitted, Attribution: f.attribution,
		Findings: []Finding{}, Drift: f.drift, Asynchrony: f.asynchrony, Log: f.log, Warnings: f.warnings}
	for _, c := range checks {
		if !c.always && !f.settled.OK {
			continue
		}
		for _, found := range c.find(f) {
			found.Code = cmp.Or(found.Code, c.code)
			if found.Change == nil {
				found.NoSetting = cmp.Or(found.NoSetting, f.noSetting(&found))
			}
			r.Findings = append(r.Findings, found)
		}
		if err := ctx.Err(); err != nil {
			return Report{}, err
		}
	}
	f.best(r.Findings)
	rank(r.Findings, f.staleness.or(0))
	if f.settled.OK {
		r.Compared = f.compared()
	}
	if f.uncovered != "" {
		r.Warnings = append(r.Warnings, "no closed form holds here: "+f.uncovered)
	}
	if r.Compared == nil {
		r.Compared = []Comparison{}
	}
	if r.Drift == nil {
		r.Drift = []Drift{}
	}
	if r.Warnings == nil {
		r.Warnings = []string{}
	}
	return r, nil
}

// rank sorts findings by what they cost: what is broken comes first, since it makes other
// figures wrong; then the larger of the share of the staleness and of the time.
func rank(findings []Finding, staleness float64) {
	cost := func(f *Finding) float64 {
		share := 0.0
		if staleness > 0 {
			share = f.CostVersions / staleness
		}
		return math.Max(share, f.CostRatio)
	}
	slices.SortStableFunc(findings, func(a, b Finding) int {
		if broken := cmp.Compare(btoi(b.Severity == severityDefect), btoi(a.Severity == severityDefect)); broken != 0 {
			return broken
		}
		return cmp.Compare(cost(&b), cost(&a))
	})
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// best gives the dominant source the change that lowers staleness most of those found.
func (f *facts) best(findings []Finding) {
	var dominant *Finding
	var change *Change
	for i := range findings {
		if findings[i].Code == "dominant_source" {
			dominant = &findings[i]
			continue
		}
		if c := findings[i].Change; c != nil && c.Gain >= gainLeast && (change == nil || c.Gain > change.Gain) {
			change = c
		}
	}
	if dominant == nil || change == nil {
		return
	}
	dominant.Change, dominant.NoSetting = change, ""
}

// costs is the finding of a change that buys staleness or time; nil where it surely buys neither.
func costs(code, title string, evidence []string, o outcome, fails string) *Finding {
	if o.unsure() {
		return &Finding{Code: code, Title: title, Severity: severityWarning, Fails: fails, NoSetting: "the gain of " + o.Set + " is not sure yet: a longer run would tell",
			Evidence: append(evidence, fmt.Sprintf("%s might lower the staleness by %s to %s", o.Set, report.Share(o.GainLow), report.Share(o.GainHigh)))}
	}
	if !o.lowers() && !o.speeds() {
		return nil
	}
	found := &Finding{Code: code, Title: title, Severity: severityCost, Evidence: evidence, Change: &o.Change, Fails: fails,
		CostRatio: math.Max(1-o.PeriodRatio, 0)}
	if o.PeriodRatio > 1.02 && !strings.Contains(found.Change.Price, "period") && !strings.Contains(found.Change.Price, "rollouts") {
		found.Change.Price = strings.TrimPrefix(found.Change.Price+"; the period is "+report.Figure(o.PeriodRatio, 3)+" times what it is", "; ")
	}
	if o.Gain > 0 {
		found.CostVersions = o.StalenessMean / (1 - o.Gain) * o.Gain
	}
	return found
}

// fig prints a figure with three digits or so.
func fig(v float64) string {
	switch {
	case math.Abs(v) >= 100:
		return report.Figure(v, 0)
	case math.Abs(v) >= 10:
		return report.Figure(v, 1)
	case math.Abs(v) >= 0.1:
		return report.Figure(v, 2)
	}
	return report.Figure(v, 3)
}

// said is a figure in a sentence of evidence, "" where it is not known.
func said(format string, m measured) []string {
	if !m.known {
		return nil
	}
	return []string{fmt.Sprintf(format, fig(m.value))}
}
