package main

import (
	"fmt"
	"math"

	"github.com/headway-rl/headway/protocol"
	"github.com/headway-rl/headway/report"
)

// health is queue health, before all other figures: what enters, what leaves, what binds.
func (p *statusPage) health(s protocol.Status) {
	t := s.Throughput
	if s.Ledger.Admitted == 0 && s.Queue.CapacityGroups == 0 { // a standby, or one that has only begun
		return
	}
	if s.Stall != nil {
		p.line("health", "%s", p.loud("nothing enters and nothing leaves for "+lastingWords(s.Stall.SinceS)))
		return
	}
	if t.Steps == 0 {
		p.line("health", "nothing to say before the second train step")
		return
	}
	made := rateWords(t.ProductionRolloutsPerS) + " rollouts/s made"
	if filtered := 1 - t.EffectiveRolloutsPerS/max(t.ProductionRolloutsPerS, math.SmallestNonzeroFloat64); filtered > 0.005 {
		made += fmt.Sprintf(", %s of use", rateWords(t.EffectiveRolloutsPerS))
	}
	lost := ""
	if t.DroppedRolloutsPerS > 0.005*t.ProductionRolloutsPerS {
		lost = ", " + rateWords(t.DroppedRolloutsPerS) + "/s dropped"
	}
	p.line("health", "%s -> queue %d/%d groups (%+.2g a step) -> %s/s trained%s", made,
		s.Queue.Groups, s.Queue.CapacityGroups, t.QueueTrendGroupsPerStep, rateWords(t.ConsumptionRolloutsPerWallS), lost)
	if says := bindingWords(s.Binding); says != "" {
		p.line("", "%s", says)
	}
	p.line("", "idle: trainer %s, engines %s · a step every %s, %s of it training",
		report.Share(t.TrainerIdleRatio), report.Share(t.RolloutIdleRatio), shortSeconds(t.PeriodS), shortSeconds(t.StepS))
}

// rateWords prints a rate with about three digits.
func rateWords(perS float64) string {
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
	"judge":       "the judge binds: rollouts wait for its verdict",
	"prefill":     "prefill binds: engines read more than they write",
	"sync":        "weight syncs bind: both sides wait for versions",
	"validation":  "validation binds: it takes the time of training",
	"admission":   "the rules bind: admission has both sides wait",
}

func bindingWords(binding string) string {
	if binding == "" {
		return ""
	}
	if says, known := bindingSays[binding]; known {
		return says
	}
	return plainText(binding) + " binds"
}
