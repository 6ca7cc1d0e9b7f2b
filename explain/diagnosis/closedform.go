package diagnosis

import (
	"cmp"
	"fmt"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/predict/theory"
)

var (
	policyNames = map[loop.Policy]string{loop.PolicyDrop: theory.PolicyDrop, loop.PolicyMax: theory.PolicyMax, loop.PolicyBlock: theory.PolicyBlock,
		loop.PolicySynchronous: theory.PolicySynchronous, loop.PolicyThreshold: theory.PolicyThreshold, loop.PolicyBounded: "bounded", loop.PolicyReplay: "replay"}
	selectNames = map[loop.Selection]string{loop.SelectOldest: theory.SelectOldest, loop.SelectNewest: theory.SelectNewest,
		loop.SelectOldestVersion: theory.SelectOldestVersion, loop.SelectFresh: theory.SelectFresh}
	startNames = map[loop.StartOrder]string{loop.StartStream: theory.StartStream, loop.StartGang: theory.StartGang}
	syncNames  = map[loop.SyncMode]string{loop.SyncInFlight: theory.SyncInFlight, loop.SyncPause: theory.SyncPause, loop.SyncDrain: theory.SyncDrain, loop.SyncRestart: theory.SyncRestart}
)

// MeasuredInput is what closed forms are asked of a run of ours: its rules, and the quantities as its summary measured
// them. Every caller that sets a closed form beside a measured figure takes this input and the mean of ClosedMean, so
// that all name one figure. Result unfit says why no closed form can be asked, empty where one can.
func MeasuredInput(rules loop.Config, s metrics.Summary) (in theory.Input, unfit string) {
	rules = rules.WithDefaults()
	in = theory.Input{
		ConcurrencyRollouts: float64(rules.Concurrency()), BatchRollouts: float64(rules.BatchGroups * rules.GroupSize), GroupSize: rules.GroupSize,
		QueueFactor: float64(rules.QueueGroups) / float64(rules.BatchGroups), Utilization: s.Utilization, StepS: s.StepS.Mean,
		TailMultiplier: min(max(s.TailMultiplier, 1), float64(rules.GroupSize)), Acceptance: min(max(s.Acceptance, 1e-6), 1),
		Policy: policyNames[rules.Policy], MaxStaleness: int(rules.MaxStaleness), Select: selectNames[rules.Select], Start: startNames[rules.Start],
		StalenessThreshold: rules.StalenessThreshold, PartialRollout: rules.Sync == loop.SyncRestart,
		SyncMode: syncNames[rules.Sync], SyncTrainer: theory.TrainerFree, SyncEvery: rules.SyncEvery,
	}
	if rules.TrainerBlocked {
		in.SyncTrainer = theory.TrainerBlocked
	}
	if rules.Sync == loop.SyncInFlight || rules.Sync == loop.SyncPause {
		in.SyncTimeS = s.SyncS.Mean
	}
	if !theory.CoversPolicy(in.Policy) {
		unfit = fmt.Sprintf("policy %s has no closed form", cmp.Or(in.Policy, fmt.Sprint(rules.Policy)))
		in.Policy = theory.PolicyDrop // for the rates alone
	}
	if in.Select == "" || in.Start == "" || in.SyncMode == "" {
		unfit = fmt.Sprintf("selection %d, start %d or sync mode %d has no closed form", rules.Select, rules.Start, rules.Sync)
	}
	if period := s.PeriodS.Mean; rules.Sync == loop.SyncPause && period > in.SyncTimeS {
		in.Utilization *= period / (period - in.SyncTimeS/float64(rules.SyncEvery)) // while engines do not stand still
	}
	in = in.WithDefaults()
	if err := in.Validate(); err != nil {
		return in, fmt.Sprintf("the measured figures are none that a closed form takes: %v", err)
	}
	return in, unfit
}

// ClosedMean is the closed form of a setting's mean staleness, corrected where a correction is known; false
// where none holds.
func ClosedMean(in theory.Input) (float64, bool) {
	p, err := theory.Predict(in)
	if err != nil || !p.Covered {
		return 0, false
	}
	return MeanOf(&p)
}

// MeanOf is the mean staleness of a prediction that is the nearest: corrected where a correction is known.
func MeanOf(p *theory.Prediction) (float64, bool) {
	if v, ok := p.Corrected.Mean.Value(); ok {
		return v, true
	}
	return p.Staleness.Mean.Value()
}

// periodOf is the best closed form of the period over the train step.
func periodOf(p *theory.Prediction) (float64, bool) {
	if v, ok := p.Corrected.Period.RelativeToStep.Value(); ok {
		return v, true
	}
	return p.Period.RelativeToStep.Value()
}
