package diagnosis

import (
	"fmt"
	"math"
	"slices"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/observe/report"
	"github.com/headway-rl/headway/predict/theory"
)

// Shares of idle time that count as much, and as little.
const (
	idleMuch   = 0.15
	idleLittle = 0.05
	// surplusMuch is how much more must be produced than is consumed for slots to be too many.
	surplusMuch = 1.15
)

// gpus is the split, where it is known.
func (f *facts) gpus() (rollout, train float64, known bool) {
	if f.log != nil {
		s := f.log.Settings
		return s.RolloutGPUs.Value, s.TrainGPUs.Value, s.RolloutGPUs.Known() && s.TrainGPUs.Known() && s.RolloutGPUs.Value > 1 && s.TrainGPUs.Value > 0
	}
	if f.settable() {
		h := f.own.document.Hardware
		train := h.TrainGPUs
		if train == 0 && h.GPUs > h.RolloutGPUs && h.RolloutGPUs > 0 {
			train = h.GPUs - h.RolloutGPUs
		}
		return float64(h.RolloutGPUs), float64(train), h.RolloutGPUs > 1 && train > 0
	}
	return 0, 0, false
}

// shared reports that no GPU can change sides: both use the same ones, or take turns.
func (f *facts) shared() bool {
	return f.in.Policy == theory.PolicySynchronous || f.log != nil && f.log.Settings.SharedGPUs
}

// onProcessor reports a run whose engines generate within the program: no GPU is there that could change sides.
func (f *facts) onProcessor() bool {
	return f.settable() && f.source == "run" && !slices.ContainsFunc(f.own.document.Engines, func(e config.Engine) bool { return e.Kind != "embedded" && e.Kind != "" })
}

// withoutGPUs makes a finding on the balance one of slots on a processor that both sides share; 0 slots prices none.
func (f *facts) withoutGPUs(found *Finding, title string, slots float64) {
	found.Title, found.Fails = title, "where something else keeps the processors busy"
	found.NoSetting = "engines and trainer share the processors of this machine, so that neither can be given some of the other's"
	if slots < f.fitted.GroupSize.Value || slots >= f.fitted.Concurrency.Value {
		return
	}
	if o, ok := f.price(f.slotsIdea(slots)); ok && (o.lowers() || o.speeds()) {
		found.Change, found.NoSetting = &o.Change, ""
		found.Change.Price = fmt.Sprintf("the period is %s times what it is", report.Figure(o.PeriodRatio, 3))
	}
}

// effective is the utilization that filters leave, by a trainer that is there.
func (f *facts) effective() float64 {
	a := f.fitted.Acceptance.Value
	if !f.fitted.Acceptance.Known() {
		a = 1
	}
	return a * f.fitted.Utilization.Value
}

// idleAbsent is the share of the slots' time in which they stood empty while the trainer was absent for long.
func (f *facts) idleAbsent() float64 {
	if f.own == nil {
		return 0
	}
	list, _ := f.own.absences()
	all, span := list.within(f.own.steps).sums(), math.Max(float64(timeOf(f.own.steps)), 1)
	return float64(all.idleNS) / span / float64(f.own.header.Loop.Concurrency())
}

// bothIdle are the idle shares in words.
func (f *facts) bothIdle() []string {
	var list []string
	if f.trainerIdle.known {
		list = append(list, "trainer idle "+report.Share(f.trainerIdle.value))
	}
	if f.rolloutIdle.known {
		list = append(list, "engines idle "+report.Share(f.rolloutIdle.value))
	}
	if f.fitted.Utilization.Known() {
		list = append(list, "ρ "+fig(f.effective()))
	}
	return list
}

// trainerStarves is the share of the time in which the trainer waits for a batch, where it can be told from
// what it waits for otherwise; its idle share where not.
func (f *facts) trainerStarves() float64 {
	if f.attribution != nil {
		return f.attribution.Trainer.Starved
	}
	return f.trainerIdle.or(0)
}

// enginesWait is the share of the time in which engines wait for admission or for a rollout to start, while there is a
// trainer.
func (f *facts) enginesWait() float64 {
	if f.attribution != nil {
		return math.Max(f.attribution.Engines.Starved+f.attribution.Engines.Paused-f.idleAbsent(), 0)
	}
	return f.rolloutIdle.or(0)
}

// moveToTrainer: rollouts wait, or are made for nothing, and the trainer is what binds.
func (f *facts) moveToTrainer() *Finding {
	idle := f.enginesWait() >= idleMuch && f.trainerIdle.known && f.trainerIdle.value <= idleLittle
	surplus := f.fitted.Utilization.Known() && f.effective() >= surplusMuch && f.trainerIdle.or(1) <= idleLittle
	if !idle && !surplus || f.shared() {
		return nil
	}
	const title = "The rollout side makes more than the trainer takes: move GPUs to the trainer."
	const fails = "where the trainer's GPUs cannot be added one replica at a time, or β* < β_crit(q): then the train-bound side is the fresher one"
	rollout, train, known := f.gpus()
	if !known {
		found := &Finding{Title: title, Severity: severityCost, Evidence: f.bothIdle(), CostRatio: f.rolloutIdle.or(0), Fails: fails}
		if surplus {
			found.CostRatio = math.Max(found.CostRatio, 1-1/f.effective())
		}
		if f.onProcessor() {
			f.withoutGPUs(found, "The rollout side makes more than the trainer takes: its engines have slots to spare.", math.Round(1.05*f.fitted.Concurrency.Value/math.Max(f.effective(), 1)))
		}
		return found
	}
	return f.moved(title, fails, rollout, train, f.toBalance(rollout, train))
}

// moveToRollout: the trainer waits, the engines do not.
func (f *facts) moveToRollout() *Finding {
	// A log that does not say how long engines wait may say that they make less than the trainer takes.
	busy := f.rolloutIdle.known && f.rolloutIdle.value <= idleLittle || !f.rolloutIdle.known && f.fitted.Utilization.Known() && f.effective() < 1-idleMuch
	if f.trainerStarves() < idleMuch || !busy || f.shared() {
		return nil
	}
	const title = "The trainer waits for rollouts: move GPUs to the rollout side."
	const fails = "where it is a sync, an environment or the tail that the trainer waits for, not decoding; and staleness grows with what is in flight"
	rollout, train, known := f.gpus()
	if !known {
		found := &Finding{Title: title, Severity: severityCost, Evidence: f.bothIdle(), CostRatio: f.trainerStarves(), Fails: fails}
		if e := f.fitted.EnvironmentRatio; e.Known() && e.Value > 1 {
			found.Title = "The trainer waits for rollouts, and those for what is outside the engine."
			found.Evidence = append(found.Evidence, fmt.Sprintf("%s of a rollout's time is outside the engine: more GPUs would not shorten that, more slots or faster tools would", report.Share(e.Value/(1+e.Value))))
		}
		if f.onProcessor() {
			f.withoutGPUs(found, "The trainer waits for rollouts.", 0)
		}
		if f.settable() && f.effective() > 0 {
			if o, ok := f.price(f.slotsIdea(math.Round(f.fitted.Concurrency.Value * math.Min(1/f.effective(), 1.5)))); ok && o.speeds() {
				found.Change, found.CostRatio = &o.Change, 1-o.PeriodRatio
				found.Change.Price = fmt.Sprintf("memory for the slots; staleness %s instead of %s versions", fig(o.StalenessMean), fig(f.staleness.value))
				found.Evidence = append(found.Evidence, "without more GPUs: more slots on those there are")
			}
		}
		return found
	}
	return f.moved(title, fails, rollout, train, -f.toBalance(rollout, train))
}

// toBalance is how many GPUs have to change sides for ρ to be just above 1 (below, rollouts are
// preferred to bind), at least 1.
func (f *facts) toBalance(rollout, train float64) float64 {
	rho := f.effective()
	// ρ ∝ N_R/N_T: want (rollout−m)/(train+m) = (rollout/train)/ρ.
	ratio := rollout / train / math.Max(rho, 1e-6)
	m := math.Abs(rollout-ratio*train) / (1 + ratio)
	most := math.Max(math.Min(rollout, train)/2, 1)
	return math.Max(math.Min(math.Round(m), most), 1)
}

// moved is the finding of GPUs that change sides.
func (f *facts) moved(title, fails string, rollout, train, moved float64) *Finding {
	found := &Finding{Title: title, Severity: severityCost, Evidence: append(f.bothIdle(), fmt.Sprintf("%s GPUs roll out, %s train", count(rollout), count(train))), Fails: fails,
		CostRatio: math.Max(f.rolloutIdle.or(0), f.trainerIdle.or(0))}
	if rollout-moved < 1 || train+moved < 1 {
		return found
	}
	if o, ok := f.price(f.splitIdea(rollout, train, moved)); ok && o.speeds() {
		found.Change, found.CostRatio = &o.Change, 1-o.PeriodRatio
	}
	return found
}

// lessWaste is the change that leaves less of what was generated untrained, nil for none that is sure.
func (f *facts) lessWaste() *Change {
	if !f.settled.OK || !f.settable() || f.dropped.or(0) < wasteMost || f.effective() < surplusMuch || f.unbounded() {
		return nil
	}
	c := f.fitted.Concurrency.Value
	to := math.Max(math.Round(c*1.05/f.effective()), f.fitted.GroupSize.Value)
	if to >= c {
		return nil
	}
	o, ok := f.price(f.slotsIdea(to))
	if !ok || o.after == nil || o.after.dropped > 0.7*f.dropped.value || o.PeriodRatio > 1.05 {
		return nil
	}
	o.Price = fmt.Sprintf("%s of the groups are dropped instead of %s; staleness %s instead of %s; the period is %s times what it is", report.Share(o.after.dropped), report.Share(f.dropped.value),
		fig(o.StalenessMean), fig(f.staleness.value), report.Figure(o.PeriodRatio, 3))
	return &o.Change
}

// starved: near ρ = 1 with one batch of queue, the trainer waits though the rollouts would do.
func (f *facts) starved() *Finding {
	rho := f.effective()
	if !f.settable() || f.unbounded() || !f.asynchronous() || rho < 0.85 || rho > 1.25 || f.fitted.QueueFactor.Value >= 2 || f.trainerIdle.or(0) < 0.03 {
		return nil
	}
	o, ok := f.price(idea{overrides: []string{f.queueKey(2), "queue.select=newest"}, holds: "C, B, S and both speeds", price: "old groups wait until they are evicted"})
	if !ok || !o.speeds() {
		return nil
	}
	return costs("starved", "Near ρ = 1 a queue of one batch lets the trainer starve.", f.bothIdle(), o,
		"away from ρ = 1, where a longer queue buys no time")
}
