package main

import (
	"fmt"
	"math"
	"strings"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/app/plane"
	"github.com/headway-rl/headway/drive/cell"
	"github.com/headway-rl/headway/engine/collective"
	"github.com/headway-rl/headway/observe/report"
)

// health is who is missing, and queue health, before all other figures: what enters, what leaves, what binds.
func (p *statusPage) health(s protocol.Status) {
	t := s.Throughput
	if s.Ledger.Admitted == 0 && s.Queue.CapacityGroups == 0 { // a standby, or one that has only begun
		return
	}
	label := "health"
	say := func(format string, args ...any) {
		p.line(label, format, args...)
		label = ""
	}
	absent, stands := missingText(s)
	if absent != "" {
		say("%s", p.loud(report.Plain(absent)))
	}
	if s.Stall != nil {
		say("%s", p.loud("nothing enters and nothing leaves for "+report.Lasting(s.Stall.SinceS)))
		return
	}
	if says := fullText(s); says != "" {
		say("%s", says)
	}
	if t.Steps == 0 {
		say("%s", ratesUnknown)
		return
	}
	before := ""
	if stands {
		before = "in the steps before: "
	}
	made := rateText(t.ProductionRolloutsPerS) + " rollouts/s made"
	if filtered := 1 - t.EffectiveRolloutsPerS/max(t.ProductionRolloutsPerS, math.SmallestNonzeroFloat64); filtered > 0.005 {
		made += fmt.Sprintf(", %s of use", rateText(t.EffectiveRolloutsPerS))
	}
	lost := ""
	if t.DroppedRolloutsPerS > 0.005*t.ProductionRolloutsPerS {
		lost = ", " + rateText(t.DroppedRolloutsPerS) + "/s dropped"
	}
	say("%s%s -> queue %d/%d groups (%+.2g a step) -> %s/s trained%s", before, made,
		s.Queue.Groups, s.Queue.CapacityGroups, t.QueueTrendGroupsPerStep, rateText(t.ConsumptionRolloutsPerWallS), lost)
	if says := bindingOf(s); says != "" && !stands {
		p.line("", "%s", says)
	}
	p.line("", "idle: trainer %s, engines %s · a step every %s, %s of it training",
		report.Share(t.TrainerIdleRatio), report.Share(t.RolloutIdleRatio), shortSeconds(t.PeriodS), shortSeconds(t.StepS))
}

// ratesUnknown is said where rates would stand.
const ratesUnknown = "rates are known from the second train step on"

// missingText name who is not there, empty while everybody is, and whether the run stands still without.
func missingText(s protocol.Status) (words string, stands bool) {
	if s.State != plane.StateRunning && s.State != plane.StateDraining {
		return "", false
	}
	var all []string
	add := func(stops bool, format string, args ...any) {
		all, stands = append(all, fmt.Sprintf(format, args...)), stands || stops
	}
	if lost, of := lostEngines(s.Engines); len(lost) > 0 && len(lost) == of {
		add(true, "%s lost: no rollouts are made until %s back", isOrAre("engine", lost), map[bool]string{true: "it is", false: "one is"}[of == 1])
	} else if len(lost) > 0 {
		add(false, "%s lost, of %d", isOrAre("engine", lost), of)
	}
	for _, c := range s.Cells {
		switch {
		case c.Away:
		case c.SilentS < 0:
			add(false, "cell %s has not been heard yet", c.Name)
		case c.SilentS > cell.Lease.Seconds():
			add(false, "cell %s is silent for %s", c.Name, shortSeconds(c.SilentS))
		case c.SilentS > cell.Lease.Seconds()/2: // it says something each third
			add(false, "cell %s is silent for %s, and newer weights wait for it", c.Name, shortSeconds(c.SilentS))
		}
	}
	if x := s.Sender; x != nil && x.State != collective.StateServing && len(x.Waiting) > 0 {
		add(false, "no sender of weights is there, and %s for it", waitText(len(x.Waiting), "engine"))
	}
	switch t := s.Trainer; {
	case t.State != "absent":
	case t.Name == "":
		add(true, "no trainer has come yet")
	default:
		add(true, "trainer %s is gone, last heard of %s ago", t.Name, shortSeconds(t.SilentS))
	}
	if w := s.Workers; w.Known == 0 && w.Offered > 0 {
		add(true, "no worker is there, and %s for one", waitText(w.Offered, "rollout"))
	} else if len(w.Silent) > 0 {
		add(false, "%s silent", isOrAre("worker", w.Silent))
	}
	return strings.Join(all, "; "), stands
}

// fullText says what waits for a trainer that is not there, empty for nothing.
func fullText(s protocol.Status) string {
	if s.Trainer.State != "absent" || s.Queue.FullS <= 0 || s.State != plane.StateRunning {
		return ""
	}
	return fmt.Sprintf("the queue has been full for %s, with %s: engines wait for a trainer", report.Lasting(s.Queue.FullS), report.Counted(s.Queue.Groups, "group"))
}

// lostEngines are those that are lost, and how many are to be there.
func lostEngines(all []protocol.Engine) (lost []string, of int) {
	for _, e := range all {
		switch e.State {
		case "away":
			continue
		case "lost", "quarantined":
			lost = append(lost, e.Name)
		}
		of++
	}
	return lost, of
}

// namedMost is how many are named in a headline.
const namedMost = 3

// isOrAre names one or several, with the verb.
func isOrAre(noun string, names []string) string {
	switch n := len(names); {
	case n == 1:
		return noun + " " + names[0] + " is"
	case n <= namedMost:
		return fmt.Sprintf("%ss %s are", noun, strings.Join(names, ", "))
	default:
		return fmt.Sprintf("%d %ss are", n, noun)
	}
}

// waitText count those who wait, with the verb.
func waitText(n int, noun string) string {
	if n == 1 {
		return "1 " + noun + " waits"
	}
	return report.Counted(n, noun) + " wait"
}

// rateText prints a rate with about three digits.
func rateText(perS float64) string {
	switch {
	case perS >= 100:
		return report.Figure(perS, 0)
	case perS >= 1:
		return report.Figure(perS, 1)
	}
	return report.Figure(perS, 3)
}

// bindingSays is what each side that can bind means for whoever would have more.
var bindingSays = map[string]string{
	"train":       "the trainer binds: more rollouts would only wait, or be dropped",
	"rollout":     "the engines bind: the trainer waits for rollouts",
	"environment": "environments bind: rollouts spend most of their time in tools and verifiers",
	"sandbox":     "sandboxes bind: rollouts wait for one",
	"verifier":    "the verifier binds: rollouts wait for its verdict",
	"scorer":      "scorers bind: rollouts wait for the scores of teachers or references",
	"prefill":     "prefill binds: engines read more than they write",
	"sync":        "weight syncs bind: both sides wait for versions",
	"validation":  "validation binds: it takes the time of training",
	"admission":   "the rules bind: admission has both sides wait",
}

// bindingOf says what binds a run that goes on. Rollouts that wait for a worker count as in the environment. Where they
// are many, the number of workers binds.
func bindingOf(s protocol.Status) string {
	if workersBind(s) {
		w := s.Workers
		return fmt.Sprintf("workers bind: %d of %d rollouts wait for one; start more, or raise their --concurrency", w.Offered, w.Offered+w.Claimed)
	}
	return bindingText(s.Binding)
}

// workersBind reports whether a quarter of the rollouts that are for workers wait for one.
func workersBind(s protocol.Status) bool {
	w := s.Workers
	return s.Binding == "environment" && w.Known > 0 && w.Offered > w.Claimed/3
}

func bindingText(binding string) string {
	if binding == "" {
		return ""
	}
	if says, known := bindingSays[binding]; known {
		return says
	}
	return report.Plain(binding) + " binds"
}
