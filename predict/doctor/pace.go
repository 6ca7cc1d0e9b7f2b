package doctor

import (
	"fmt"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/predict/theory"
)

const (
	keySyncTime    = "modelled.sync.time_s"
	keyWarmup      = "steps.warmup"
	keyTailness    = "modelled.length"
	keyUtilization = "modelled.train.utilization"
)

var paceChecks = []check{
	{Kind{
		Code: "sync-longer-than-step", Severities: []Severity{Warning}, Keys: []string{keySyncTime},
		When:  "a weight sync takes longer than the train steps between two of them: versions are skipped, and engines fall behind by more than one",
		Known: "arithmetic on the modelled times: `time_s` against K·t_step·max(1, 1/ρ)",
	}, (*examination).slowSync},
	{Kind{
		Code: "settling", Severities: []Severity{Warning}, Keys: []string{keyWarmup},
		When:  "`steps.warmup` is shorter than the queue needs to settle: figures of a simulation depend on its start",
		Known: "closed form: about (q−1)²·G steps near ρ = 1, a few staleness times elsewhere",
	}, (*examination).settling},
	{Kind{
		Code: "not-smooth", Severities: []Severity{Warning}, Keys: []string{keyTailness},
		When:  "rollouts take nearly equal times: groups fall in step with the trainer, and staleness is a staircase in every setting",
		Known: "closed form: the spread of rollout times is below 2 % of their mean",
	}, (*examination).notSmooth},
	{Kind{
		Code: "tail", Severities: []Severity{Info}, Keys: []string{keyTailness},
		When:  "policy `drop`: most staleness is made by waiting for the longest sibling (M ≥ 1.5): what a length cap would buy. It fails where long answers are the ones that matter",
		Known: "closed form, at a cap at the 90th percentile",
	}, (*examination).tail},
	{Kind{
		Code: "train-bound", Severities: []Severity{Info}, Keys: []string{keyUtilization, "modelled.train.step_s", "modelled.train.throughput_tokens_per_s"},
		When:  "ρ above 1.05. The rule of thumb is to be rollout-bound; it fails where a train GPU handles fewer than β_crit times the tokens of a rollout GPU",
		Known: "closed form under policy `drop`: β_crit = 1/(6q − 4 + 4√((q−1)(2q−1))); else, and where engines drain or hold, a simulation in which the trainer idles at most 5 % of the time",
	}, (*examination).trainBound},
	{Kind{
		Code: "not-simulated", Severities: []Severity{Info}, Keys: []string{"train", "rollout", "modelled.solve", keyConcurrency, keyTarget},
		When:  "the document does not say how fast the trainer is, or how rewards come about that a filter looks at, or is too large for a short simulation, or has what no closed form covers: less is checked, of a target (`control.target`) too, whose window alone may be too long; where no closed form covers the document, what binds is the simulation's word",
		Known: "arithmetic, and a simulation where there is one",
	}, (*examination).notSimulated},
}

func (e *examination) slowSync() {
	rho, ok := e.load()
	time := e.syncS()
	if !ok || time == 0 || e.rules.TrainerBlocked || e.rules.Policy == loop.PolicySynchronous {
		return
	}
	cycle := e.setting.StepS * max(1, 1/rho) * float64(e.rules.SyncEvery)
	if time <= cycle {
		return
	}
	behind := time / cycle * float64(e.rules.SyncEvery)
	f := e.add(Warning, keySyncTime, Arithmetic)
	f.What = fmt.Sprintf("a weight sync of %s s is longer than the %s s of training between two: engines skip versions", short(time), short(cycle))
	f.Why = fmt.Sprintf("a running sync is finished before the newest version follows, and the trainer makes %s meanwhile", plural(behind, "version"))
	f.Do = fmt.Sprintf("sync.every of at least %d, or a faster transfer; sync.trainer: blocked gives the time to staleness instead", int(time/cycle*float64(e.rules.SyncEvery))+1)
	f.Figures = Figures{{"sync_s", time}, {"cycle_s", cycle}, {"versions_per_sync", behind}}
}

func (e *examination) settling() {
	p, ok := e.predict()
	warmup := float64(e.document.Steps.Warmup)
	if !ok || e.rules.Policy != loop.PolicyDrop || !e.plain() || warmup >= p.SettlingSteps {
		return
	}
	f := e.add(Warning, keyWarmup, ClosedForm)
	f.What = fmt.Sprintf("%s steps of warm-up are less than the %s the queue needs to settle", short(warmup), short(p.SettlingSteps))
	f.Why = "a mean says little before several times the groups of one staleness have gone through"
	if q := e.setting.QueueFactor; q > 1 {
		f.Why = fmt.Sprintf("at an effective ρ of %s the queue's stock wanders over %s of a batch, and a mean says little before it has been everywhere", short(p.Utilization), percent(q-1))
	}
	f.Do = fmt.Sprintf("steps.warmup: %.0f, and several times that measured", p.SettlingSteps)
	f.Figures = Figures{{"settling_steps", p.SettlingSteps}, {"warmup_steps", warmup}}
}

func (e *examination) notSmooth() {
	p, ok := e.predict()
	if !ok || p.Smooth || !e.alikePrompts() {
		return
	}
	f := e.add(Warning, keyTailness, ClosedForm)
	f.What = "rollouts take nearly equal times: figures are not smooth in the settings"
	f.Why = "groups fall in step with the trainer, and staleness jumps by whole versions at small changes"
	f.Do = "read staleness as ± ½, and vary settings over a range before choosing one"
	f.Figures = Figures{{"tail_multiplier", p.TailMultiplier}}
}

func (e *examination) tail() {
	p, ok := e.predict()
	if !ok || e.rules.Policy != loop.PolicyDrop || !e.plain() || p.Dominant != theory.DominantPQS || p.TailMultiplier < 1.5 {
		return
	}
	pqs, _ := p.PQS.Value()
	mean, _ := p.Staleness.Mean.Value()
	f := e.add(Info, keyTailness, ClosedForm)
	f.What = fmt.Sprintf("%s of %s versions of staleness are made while a group generates, waiting for the longest of its rollouts", short(pqs), short(mean))
	f.Why = fmt.Sprintf("the longest of %d siblings takes %s times as long as a mean one", e.rules.GroupSize, short(p.TailMultiplier))
	f.Figures = Figures{{"pqs_versions", pqs}, {"staleness_mean_versions", mean}, {"tail_multiplier", p.TailMultiplier}}
	for _, lever := range p.Levers {
		if after, known := lever.StalenessMean.Value(); known && lever.Name == "tail" {
			f.Do = fmt.Sprintf("%s would bring staleness to %s (%s), if long answers can be spared", lever.Change, short(after), lever.Note)
			f.Figures = append(f.Figures, Figure{"staleness_mean_capped_versions", after})
		}
	}
}

func (e *examination) trainBound() {
	p, ok := e.predict()
	if !ok || e.rules.Policy == loop.PolicySynchronous || !e.plain() || p.Utilization <= 1.05 {
		return
	}
	const instead = "; the same period is reached with less staleness on the rollout-bound side, by moving GPUs to the trainer"
	what := fmt.Sprintf("the run is train-bound: engines can produce %s times what the trainer takes", short(p.Utilization))
	if e.rules.Policy == loop.PolicyDrop && e.rules.Hold == 0 && e.rules.Sync != loop.SyncDrain {
		critical := theory.BetaCritical(max(e.setting.QueueFactor, 1))
		f := e.add(Info, e.speedKey(), ClosedForm)
		f.What, f.Why = what, "the trainer sets the period, and what it cannot take is dropped"+instead
		f.Do = fmt.Sprintf("fewer rollout GPUs; not so if a train GPU handles less than %s of the tokens per second of a rollout GPU", short(critical))
		f.Figures = Figures{{"effective_utilization", p.Utilization}, {"beta_critical", critical}}
		return
	}
	// Rules that let engines wait can leave the trainer idle whatever ρ is.
	seen := e.probe()
	if seen == nil || seen.stalled != nil || seen.result.Summary.TrainerIdleRatio > idleBusy {
		return
	}
	idle := seen.result.Summary.TrainerIdleRatio
	f := e.add(Info, e.speedKey(), Simulated)
	f.What, f.Why = what, fmt.Sprintf("the trainer sets the period, idle in %s of the time, and engines wait or generate what it cannot take", percent(idle))
	f.Do = "fewer rollout GPUs, or more for the trainer"
	f.Figures = Figures{{"effective_utilization", p.Utilization}, {"trainer_idle_share", idle}}
}

func (e *examination) notSimulated() {
	key, what, do := "", "", ""
	why := "a run measures its own speeds and rewards; a prediction needs them before"
	switch {
	case e.setting == nil:
		key, what = "train", "the document does not say how fast the trainer is: staleness, waste and stalls are not predicted"
		do = "one of modelled.train.utilization, modelled.train.step_s, modelled.train.throughput_tokens_per_s, such as --set modelled.train.utilization=0.9"
		if e.document.Hardware.GPUs > 0 {
			do = "headway plan on the same document, which works speeds out; what it writes with --write can be examined"
		}
	case e.simulate == nil:
		key, what = "modelled.solve", "a filter looks at rewards, and the document does not say how they come about: only closed forms and rules are checked"
		do = "modelled.solve of kind fixed or logistic"
	case e.probe() == nil && e.err == nil:
		key, what = keyConcurrency, fmt.Sprintf("%d slots and %d rollouts a batch are too many for a short simulation: only closed forms and rules are checked", e.rules.Concurrency(), e.batch())
		do = "headway simulate on the same document, which takes its time"
		why = fmt.Sprintf("a simulation costs by rollout and by slot, and doctor's is of at most %d and %d", probeRolloutsMax, probeSlotsMax)
	case e.beside != "":
		key, what = "rollout", "no closed form covers the document: only rules and a short simulation are checked"
		why = e.beside
	case !e.goalUnexamined():
		return
	default:
		key, what = keyTarget, fmt.Sprintf("train steps of %d rollouts over a window of %d are too many for a short simulation of the controller", e.batch(), e.goalWindow())
		do = "a shorter control.window, or headway simulate on the same document, which takes its time"
		why = fmt.Sprintf("a target is judged over several windows, and doctor's simulations are of at most %d rollouts", probeRolloutsMax/3)
	}
	if e.goalUnexamined() {
		what += "; whether control.target can be held, and what that costs, is not examined"
	}
	_, known, basis := e.evidence()
	known = known && key == "rollout"
	if !known {
		basis = Arithmetic
	}
	f := e.add(Info, key, basis)
	f.What, f.Do = what, do
	f.Why = why
	if known {
		binding := e.probed.result.Summary.Throughput.Binding
		f.Why += fmt.Sprintf("; what binds in the simulation: %s", binding)
		f.Figures = Figures{{"staleness_mean_versions", e.probed.result.Summary.Staleness.Mean}, {"trainer_idle_share", e.probed.result.Summary.TrainerIdleRatio}}
	}
}
