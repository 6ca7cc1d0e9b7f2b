package diagnosis

import (
	"fmt"
	"math"
	"strings"

	"github.com/headway-rl/headway/drive/replay"
	"github.com/headway-rl/headway/explain/foreign"
	"github.com/headway-rl/headway/observe/attribution"
	"github.com/headway-rl/headway/observe/report"
	"github.com/headway-rl/headway/predict/theory"
)

// sourceSays says in words what a source of staleness is.
var sourceSays = map[string]string{
	attribution.Sync.String():        "a weight sync under way or late when groups begin",
	attribution.Inner.String():       "several train steps to a weight sync",
	attribution.Concurrency.String(): "rollouts in flight over the batch: groups generate through updates",
	attribution.Environment.String(): "time in tools, sandboxes and verifiers",
	attribution.Tail.String():        "the last rollout of a group, for which the others wait",
	attribution.Queue.String():       "waiting in the queue behind others",
	attribution.Fill.String():        "waiting for the batch to fill",
}

// dominantSource names the largest part of the staleness.
func (f *facts) dominantSource() *Finding {
	if a := f.attribution; a != nil && a.Groups > 0 && a.StalenessMean > 0 {
		found := &Finding{Title: fmt.Sprintf("%s of the staleness comes from %s.", report.Share(a.Share), sourceSays[a.Dominant]), Severity: severityCost,
			CostVersions: a.Share * a.StalenessMean, Fails: "near a tie: two sources within 5 % are as good as one"}
		var parts []string
		for _, p := range a.Parts {
			if p.Share >= 0.005 {
				parts = append(parts, fmt.Sprintf("%s %s", p.Source, fig(p.Versions)))
			}
		}
		found.Evidence = []string{fmt.Sprintf("of %s versions: %s", fig(a.StalenessMean), strings.Join(parts, ", "))}
		if len(a.Ties) > 0 {
			found.Evidence = append(found.Evidence, "within 5 % of it: "+strings.Join(a.Ties, ", "))
		}
		return found
	}
	if !f.pqs.known || !f.iqs.known || f.pqs.value+f.iqs.value == 0 {
		return nil
	}
	part, title := f.pqs, "generation before the queue"
	if f.iqs.value > f.pqs.value {
		part, title = f.iqs, "waiting in the queue"
	}
	return &Finding{Title: fmt.Sprintf("%s of the staleness comes from %s.", report.Share(part.value/(f.pqs.value+f.iqs.value)), title), Severity: severityCost,
		CostVersions: part.value, Evidence: []string{fmt.Sprintf("PQS %s, IQS %s versions", fig(f.pqs.value), fig(f.iqs.value))}}
}

// asynchronous reports whether a queue stands between rollouts and trainer whose order and
// size act.
func (f *facts) asynchronous() bool {
	return f.in.Policy == theory.PolicyDrop || f.in.Policy == theory.PolicyMax || f.in.Policy == theory.PolicyBlock
}

// queueFactorOne: set q = 1.
func (f *facts) queueFactorOne() *Finding {
	q := f.fitted.QueueFactor
	if !q.Known() || q.Value < 1.25 || !f.asynchronous() || f.in.Select == theory.SelectNewest || f.unbounded() {
		return nil
	}
	o, ok := f.price(f.queueIdea(1))
	if !ok {
		return nil
	}
	evidence := append([]string{fmt.Sprintf("the queue holds %s batches", fig(q.Value))}, said("in-queue staleness %s versions", f.iqs)...)
	return costs("queue_factor_one", "The queue is longer than one batch: what waits in it ages.", evidence, o,
		"near ρ = 1 with uneven arrivals, where a queue of one batch lets the trainer starve; newest first with q = 2 keeps q = 1's staleness without that")
}

// unbounded reports whether another rule than the queue's own says how much is ahead.
func (f *facts) unbounded() bool {
	p := ""
	if f.log != nil {
		p = f.log.Settings.Policy
	} else {
		p = policyNames[f.own.header.Loop.Policy]
	}
	return p == "bounded" || p == "replay" || p == theory.PolicyThreshold || p == theory.PolicySynchronous
}

// newestAndHold: newest first, and no group opened just before a new version.
func (f *facts) newestAndHold() *Finding {
	if !f.settable() || !f.asynchronous() || f.unbounded() || f.in.Policy == theory.PolicyBlock || f.own.header.Loop.Hold > 0 || f.in.Select != theory.SelectOldest {
		return nil
	}
	if f.fitted.Concurrency.Value < 16*f.fitted.GroupSize.Value {
		return nil // a bias of lengths beyond 1 %
	}
	o, ok := f.price(f.newestIdea())
	if !ok || !o.lowers() && !o.unsure() || o.PeriodRatio > 1.1 {
		return nil
	}
	if o.after != nil {
		o.Price += fmt.Sprintf("; trained over sampled length %s", report.Figure(o.after.bias, 3))
	}
	return costs("newest_and_hold", "Groups start just before a new version, and the oldest are trained first.",
		[]string{fmt.Sprintf("select %s, no hold; ρ %s", f.in.Select, fig(f.effective()))}, o,
		"above θ = 0.3 or with fewer than 16 groups in flight it prefers short rollouts; below ρ = 1 it costs period")
}

// tailMost is the multiplier from which on the tail is worth a finding.
const tailMost = 1.3

// longTail: the length cap is the lever on the tail.
func (f *facts) longTail() *Finding {
	m := f.fitted.TailMultiplier
	if !m.Known() || m.Value < tailMost {
		return nil
	}
	found := &Finding{Title: fmt.Sprintf("The last rollout of a group takes %s times a mean one.", fig(m.Value)), Severity: severityWarning,
		Evidence: append([]string{"it is a leading indicator: staleness follows it"}, said("pre-queue staleness %s versions", f.pqs)...),
		Fails:    "where truncated rollouts are the ones that are right, or where it is the environment that takes long"}
	i, ok := f.capIdea(0.95)
	if !ok {
		return found
	}
	o, ok := f.price(i)
	if !ok {
		return found
	}
	if priced := costs("tail", found.Title, found.Evidence, o, found.Fails); priced != nil {
		return priced
	}
	found.Evidence = append(found.Evidence, "a cap at the 95th percentile would buy nothing that is sure")
	return found
}

// concurrency: fewer rollouts in flight, where that is what staleness comes from.
func (f *facts) concurrency() *Finding {
	c := f.fitted.Concurrency
	if !c.Known() || !f.fitted.GroupSize.Known() {
		return nil
	}
	to := math.Max(math.Round(0.75*c.Value), f.fitted.GroupSize.Value)
	if to >= c.Value {
		return nil
	}
	o, ok := f.price(f.slotsIdea(to))
	if !ok || !o.lowers() && !o.unsure() {
		return nil
	}
	o.Price = fmt.Sprintf("the period is %s times what it is", report.Figure(o.PeriodRatio, 3))
	return costs("concurrency", "More rollouts are in flight than the batch needs.",
		[]string{fmt.Sprintf("%s in flight for a batch of %s", count(c.Value), count(f.fitted.Batch.Value))}, o,
		"where engines decode each slot no faster with fewer of them and the trainer waits already: it then pays in period for what it gains in staleness")
}

// batchAgainstStaleness: a larger batch has lower staleness.
func (f *facts) batchAgainstStaleness() *Finding {
	if f.staleness.or(0) < 2 || !f.fitted.Batch.Known() || f.in.Policy == theory.PolicySynchronous {
		return nil
	}
	o, ok := f.price(f.batchIdea(2))
	if !ok || !o.lowers() {
		return nil
	}
	return costs("batch_against_staleness", "A larger batch would reach a lower staleness.",
		[]string{fmt.Sprintf("staleness %s at a batch of %s", fig(f.staleness.value), count(f.fitted.Batch.Value))}, o,
		"where updates, not samples, are what learning needs: the noise-adjusted time of an update, T/√B, rises")
}

// stalenessBudget: a lower bound of the rules that have one.
func (f *facts) stalenessBudget() *Finding {
	if f.model != nil && (f.model.at.policy == "bounded" || f.model.at.policy == theory.PolicyThreshold) {
		to := 0.6 * f.model.at.budget
		if whole := math.Floor(to); f.model.at.budget == math.Trunc(f.model.at.budget) && whole >= 1 {
			to = whole
		}
		set := fig(to)
		if to == math.Trunc(to) { // most take whole numbers only
			set = count(to)
		}
		return f.lowerBound(idea{knob: f.knob(leverBudget, set), model: func(m *modelled) { m.budget = to }})
	}
	if !f.settable() {
		return nil
	}
	rules, d := f.own.header.Loop, f.own.document
	var i idea
	switch policyNames[rules.Policy] {
	case "bounded":
		if rules.Eta < 0.5 {
			return nil
		}
		i.overrides = []string{set("queue.eta", math.Round(10*rules.Eta*0.6)/10)}
	case theory.PolicyThreshold:
		if rules.StalenessThreshold < 0.2 {
			return nil
		}
		i.overrides = []string{set("queue.staleness_threshold", math.Round(100*rules.StalenessThreshold*0.6)/100)}
	default:
		return nil
	}
	if d.Queue.Factor > 0 && d.Queue.Capacity == 0 { // it was what was admitted, and would be larger than that
		i.overrides = append(i.overrides, "queue.factor=null")
	}
	return f.lowerBound(i)
}

// lowerBound is the finding of a bound that may be lower.
func (f *facts) lowerBound(i idea) *Finding {
	i.holds, i.price = "C, B, S and both speeds", "engines wait for admission"
	o, ok := f.price(i)
	if !ok || !o.lowers() {
		return nil
	}
	return costs("staleness_budget", "The bound on what runs ahead is what sets the staleness.",
		said("mean staleness %s versions", f.staleness), o, "where engines cannot be kept busy with so few groups: the period grows")
}

// budgetCannotBind: a budget that nothing ever reaches.
func (f *facts) budgetCannotBind() *Finding {
	budget, reach, what := 0.0, 0.0, ""
	switch {
	case f.own != nil && policyNames[f.own.header.Loop.Policy] == theory.PolicyMax:
		budget, what = float64(f.own.header.Loop.MaxStaleness), "queue.max_staleness"
		if f.own.summary.Waste.GroupsEnded.Discarded > 0 || f.own.ledger.Discarded > 0 {
			return nil
		}
		reach = budget
	case f.log != nil && f.log.Settings.StalenessBudget.Known() && budgetIsVersions[f.log.Framework]:
		budget, what = f.log.Settings.StalenessBudget.Value, f.knobName(leverBudget)
		reach = budgetReach(f.log)
		if f.log.Settings.Policy == theory.PolicyMax && f.dropped.or(0) > 0 {
			return nil
		}
	default:
		return nil
	}
	if !f.stalenessMax.known || f.stalenessMax.value >= reach || f.staleness.or(0) == 0 {
		return nil
	}
	return &Finding{Title: "The staleness budget cannot bind: nothing ever reaches it.", Severity: severityWarning,
		Evidence: []string{fmt.Sprintf("%s is %s, the stalest of the run was %s", what, fig(budget), fig(f.stalenessMax.value))},
		Fails:    "where it is there for accidents: a lost engine or a straggler may reach it yet"}
}

// budgetIsVersions are the frameworks whose budget counts versions of single groups.
var budgetIsVersions = map[string]bool{"verl-v1": true, "prime-rl": true, "skyrl": true, "nemo-rl": true, "areal": true, "trl": true}

// budgetReach is the largest staleness that a log's budget lets be trained, in train steps. verl's counts the versions
// from the first to the one that trains, both among them; where it or TRL syncs once in several steps, it counts syncs.
func budgetReach(log *foreign.Log) float64 {
	budget, every := log.Settings.StalenessBudget.Value, 1.0
	switch log.Framework {
	case "verl-v1":
		budget--
	case "trl":
	default:
		return budget
	}
	if log.Settings.SyncEvery.Known() {
		every = math.Max(log.Settings.SyncEvery.Value, 1)
	}
	return budget*every + every - 1
}

// innerSteps: several train steps a sync.
func (f *facts) innerSteps() *Finding {
	every := f.in.SyncEvery
	if every <= 1 {
		return nil
	}
	i := idea{holds: "everything else", price: "a weight sync after every train step",
		input: func(in *theory.Input) float64 { in.SyncEvery = 1; return 1 }}
	if f.settable() {
		i.overrides = []string{"sync.every=1"}
	} else {
		i.knob = f.knob(leverSyncEvery, "1")
	}
	o, ok := f.price(i)
	if !ok || !o.lowers() {
		return nil
	}
	return costs("inner_steps", fmt.Sprintf("Engines get new weights only every %d train steps.", every),
		[]string{fmt.Sprintf("the versions between are never served: %s of lag on average", fig(float64(every-1)/2))}, o,
		"where a sync takes a large part of a train step, or every sync interrupts rollouts")
}

// syncTime: what weight syncs take.
func (f *facts) syncTime() *Finding {
	sync, step := f.fitted.SyncS, f.fitted.StepS
	if !sync.Known() || !step.Known() || step.Value <= 0 || sync.Value < 0.05*step.Value {
		return nil
	}
	evidence := []string{fmt.Sprintf("a sync takes %s s, a train step %s s", fig(sync.Value), fig(step.Value))}
	title := "Weight syncs take a good part of a train step."
	fails := "where the sync is hidden behind the next step already"
	if f.settable() {
		var best *Finding
		for _, i := range f.syncIdeas() {
			o, ok := f.price(i)
			if !ok {
				continue
			}
			if found := costs("sync_time", title, evidence, o, fails); found != nil && (best == nil || found.CostVersions+found.CostRatio > best.CostVersions+best.CostRatio) {
				best = found
			}
		}
		if best != nil {
			return best
		}
	}
	return &Finding{Title: title, Severity: severityCost, Evidence: evidence, CostVersions: f.syncVersions(), Fails: fails}
}

// syncVersions is the staleness that weight syncs are responsible for: the split's part, where there is one; otherwise
// about the versions made during a sync, and no more than the whole staleness.
func (f *facts) syncVersions() float64 {
	if versions, known := f.partOf(attribution.Sync); known {
		return versions
	}
	most := f.fitted.SyncS.Value / math.Max(f.period.or(f.fitted.StepS.Value), 1e-9)
	return math.Min(most, f.staleness.or(most))
}

// partOf is a source's part of the staleness by the split, where there is one.
func (f *facts) partOf(source attribution.Source) (versions float64, known bool) {
	if f.attribution == nil {
		return 0, false
	}
	return f.attribution.Parts[source].Versions, true
}

// syncIdeas are gentler ways to sync.
func (f *facts) syncIdeas() []idea {
	var list []idea
	rules := f.own.header.Loop
	if rules.TrainerBlocked {
		list = append(list, idea{overrides: []string{"sync.trainer=free"}, holds: "everything else", price: "the next step trains while engines load",
			input: func(in *theory.Input) float64 { in.SyncTrainer = theory.TrainerFree; return 1 }})
	}
	if mode := syncNames[rules.Sync]; mode != theory.SyncInFlight {
		list = append(list, idea{overrides: []string{"sync.mode=in_flight"}, holds: "everything else", price: "responses span versions",
			input: func(in *theory.Input) float64 { in.SyncMode = theory.SyncInFlight; return 1 }})
	}
	return list
}

// environmentTime: tools, sandboxes and verifiers.
func (f *facts) environmentTime() *Finding {
	e := f.fitted.EnvironmentRatio
	if !e.Known() || e.Value < 0.2 {
		return nil
	}
	half := 0.5
	i := idea{knob: "tools, sandboxes and verifiers in half the time", overrides: f.halvedEnvironment(), holds: "lengths, decode speed and the trainer",
		price: "warm sandboxes, more workers, a faster verifier", settings: func(s *replay.Settings) { s.OutsideScale = &half }}
	title := fmt.Sprintf("Rollouts spend %s of their time outside the engine, with their slot held.", report.Share(e.Value/(1+e.Value)))
	evidence := []string{fmt.Sprintf("environment time is %s of the time of decoding", report.Share(e.Value))}
	const fails = "where the slot is free meanwhile: then more slots hide it"
	if o, ok := f.price(i); ok {
		if found := costs("environment_time", title, evidence, o, fails); found != nil {
			return found
		}
	}
	versions, _ := f.partOf(attribution.Environment)
	return &Finding{Title: title, Severity: severityCost, Evidence: evidence, CostVersions: versions, Fails: fails}
}

// halvedEnvironment is half the modelled time, of a simulation that has no more than that: other runs measure theirs.
func (f *facts) halvedEnvironment() []string {
	if f.source != "simulation" || !f.settable() {
		return nil
	}
	if f.own.document.Modelled.Environment.MeanS <= 0 || f.own.document.Modelled.Tools.Calls > 0 || f.own.document.Modelled.Verifier.Time.MeanS > 0 || f.own.document.Modelled.Sandbox.When != "" {
		return nil
	}
	return []string{set("modelled.environment.mean_s", f.own.document.Modelled.Environment.MeanS/2)}
}

// phaseLocked: staleness is a staircase of the settings.
func (f *facts) phaseLocked() *Finding {
	if f.unfit != "" || f.predicted.Smooth || f.predicted.TailMultiplier == 0 || f.in.Policy == theory.PolicySynchronous {
		return nil
	}
	return &Finding{Title: "Rollouts take nearly equal times: groups fall in step with the trainer.", Severity: severityWarning,
		Evidence: []string{fmt.Sprintf("tail multiplier %s: staleness jumps by whole versions with small changes of the settings, and no closed form holds", fig(f.fitted.TailMultiplier.Value))},
		Fails:    "as soon as lengths spread"}
}
