package diagnosis

import (
	"context"
	"fmt"
	"math"

	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/workload"
	"github.com/headway-rl/headway/observe/report"
	"github.com/headway-rl/headway/predict/theory"
)

// modelled is a log's run as a simulation: its fitted quantities under its queue's rule.
type modelled struct {
	in theory.Input
	// policy and budget are the queue's rule as loop.md names it, with its number.
	policy string
	budget float64
	// slots at least: admission may keep fewer in flight than there is room for.
	slots float64
}

// model simulates a log's run, for what no closed form covers.
type model struct {
	ctx  context.Context
	at   modelled
	base arm
	// lengths are by what they are found for, which takes longer than to simulate.
	lengths map[spread]*workload.Lengths
}

// spread is what lengths of a group have.
type spread struct {
	tail float64
	size int
}

const (
	// modelMeanTokens is the mean length in the model: only its spread counts.
	modelMeanTokens = 2000
	modelRollouts   = 100_000
	modelStepsMin   = 300
	// modelFits bounds how often it is fitted to the period.
	modelFits = 6
	// modelOff is by how much the model's staleness may be off the measured one, as a share of that, for
	// its changes to be believed.
	modelOff = 0.2
)

// newModel makes the model and holds it against what was measured. The error says why it is of no use.
func newModel(ctx context.Context, f *facts) (*model, error) {
	s := f.log.Settings
	m := &model{ctx: ctx, lengths: map[spread]*workload.Lengths{}, at: modelled{in: f.in, policy: s.Policy, budget: s.StalenessBudget.Value, slots: s.ConcurrencyRollouts.Value}}
	if f.unfit != "" && s.Policy != "bounded" {
		return nil, fmt.Errorf("%s", f.unfit)
	}
	if err := m.fit(f); err != nil {
		return nil, err
	}
	if f.staleness.known && math.Abs(m.base.staleness.Mean-f.staleness.value) > modelOff*math.Max(f.staleness.value, versionScale) {
		return nil, fmt.Errorf("a simulation of the fitted quantities has a staleness of %s, the log %s: its changes are not priced by it",
			report.Figure(m.base.staleness.Mean, 2), report.Figure(f.staleness.value, 2))
	}
	return m, nil
}

// fit finds the slot's time with which the model has the log's period: what was produced under an
// admission that waits is less than what the slots could.
func (m *model) fit(f *facts) (err error) {
	for range modelFits {
		if m.base, err = m.run(m.at); err != nil {
			return err
		}
		off := m.base.period.Mean / f.period.or(m.base.period.Mean)
		if f.fitted.StepS.Value == 0 || math.Abs(off-1) < 0.02 || m.base.trainerIdle < 0.02 && off > 1 {
			return nil
		}
		m.at.in.Utilization *= off
	}
	return nil
}

// try simulates an idea.
func (m *model) try(i *idea) (arm, error) {
	at := m.at
	if i.input != nil {
		before := at.in.ConcurrencyRollouts
		i.input(&at.in)
		at.slots *= at.in.ConcurrencyRollouts / before
	}
	if i.model != nil {
		i.model(&at)
	}
	return m.run(at)
}

// run simulates a setting, with the same draws as every other.
func (m *model) run(at modelled) (arm, error) {
	if err := m.ctx.Err(); err != nil {
		return arm{}, err
	}
	cfg, err := m.config(&at)
	if err != nil {
		return arm{}, err
	}
	res, err := sim.Run(cfg)
	if err != nil {
		return arm{}, err
	}
	return armOf(res.Summary, windowSteps(res.Series, loop.Version(cfg.Warmup))), nil
}

// config is the setting as a simulation. A slot takes as long for a mean rollout as the utilization says.
func (m *model) config(at *modelled) (sim.Config, error) {
	in := at.in.WithDefaults()
	if in.StepS == 0 {
		in.StepS = 1 // periods are relative to it
	}
	has := spread{in.TailMultiplier, in.GroupSize}
	lengths := m.lengths[has]
	if lengths == nil {
		var err error
		if lengths, err = lengthsOf(has.tail, has.size); err != nil {
			return sim.Config{}, err
		}
		m.lengths[has] = lengths
	}
	accept, err := workload.NewAcceptance(in.Acceptance)
	if err != nil {
		return sim.Config{}, err
	}
	rules, err := at.rules(in)
	if err != nil {
		return sim.Config{}, err
	}
	rolloutS := in.ConcurrencyRollouts * in.StepS / (in.BatchRollouts * in.Utilization)
	steps := max(modelRollouts/int(in.BatchRollouts), modelStepsMin)
	return sim.Config{Loop: rules, Work: sim.NewModelled(1, lengths, nil, accept, int64(in.StepS*1e9)), NSPerToken: rolloutS * 1e9 / lengths.Mean(),
		SyncNS: int64(in.SyncTimeS * 1e9), Warmup: steps / 5, Measured: steps}, nil
}

// rules are the loop's under the queue's rule.
func (at *modelled) rules(in theory.Input) (loop.Config, error) {
	groups := max(int(math.Round(in.BatchRollouts/float64(in.GroupSize))), 1)
	slots := max(int(math.Round(math.Max(at.slots, in.ConcurrencyRollouts))), 1)
	rules := loop.Config{GroupSize: in.GroupSize, BatchGroups: groups, EngineSlots: []int{slots}, SyncEvery: in.SyncEvery, TrainerBlocked: in.SyncTrainer == theory.TrainerBlocked,
		QueueGroups: max(int(in.QueueFactor*float64(groups)), groups), MaxStaleness: loop.Version(at.budget), Eta: at.budget, StalenessThreshold: at.budget}
	known := false
	for policy, name := range policyNames {
		if name == at.policy && policy != loop.PolicyReplay && policy != loop.PolicySynchronous {
			rules.Policy, known = policy, true
		}
	}
	if !known {
		return rules, fmt.Errorf("policy %q is not modelled", at.policy)
	}
	rules.QueueGroups = max(rules.QueueGroups, rules.LiveGroupsMax())
	return rules, rules.Validate()
}

// lengthsOf are lognormal lengths of this tail multiplier.
func lengthsOf(tail float64, size int) (*workload.Lengths, error) {
	low, high := 0.0, 100.0
	for {
		at := (low + high) / 2
		lengths, err := workload.LengthSpec{Kind: workload.KindLognormal, MeanTokens: modelMeanTokens, Tailness: at}.Build()
		if err != nil || high-low < 0.01 {
			return lengths, err
		}
		if lengths.TailMultiplier(size) < tail {
			low = at
		} else {
			high = at
		}
	}
}

// simulated fills in what the model says, relative to the run itself in it.
func (o *outcome) simulated(f *facts, after arm) {
	base := f.model.base
	o.Method, o.after = methodSimulation, &after
	ratio := after.staleness.Mean / base.staleness.Mean
	o.Gain = 1 - ratio
	o.StalenessMean = f.staleness.value * ratio
	half := ratio * math.Hypot(share(after.staleness), share(base.staleness))
	o.between(half)
	o.PeriodRatio = after.period.Mean / base.period.Mean
	o.periodHalf = o.PeriodRatio * math.Hypot(share(after.period), share(base.period))
}
