package experiment

import (
	"context"
	"fmt"
	"math"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/internal/parallel"
	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/predict/theory"
)

// leverRollouts is the size of a lever's simulation: a mean within a few per cent.
const leverRollouts = answerRollouts / 4

// simulatedLevers simulates what single changes of a document would buy, beside the period
// of the document itself. A change under which the run would stand still says so. What a controller may change by
// itself is no lever; a target is one, and under says what each does under it.
func simulatedLevers(d config.Config, setting theory.Input, base metrics.Summary) (levers []theory.Lever, under []TargetLever, err error) {
	asDrop := setting
	asDrop.Policy, asDrop.Select, asDrop.MaxStaleness = theory.PolicyDrop, theory.SelectOldest, 0
	p, err := theory.Predict(asDrop)
	if err != nil {
		return nil, nil, err
	}
	levers, documents := targetLevers(d, base.Control)
	for i := range levers {
		levers[i].Setting = asDrop
	}
	for _, l := range p.Levers {
		l.StalenessMean, l.CorrectedMean, l.PeriodRatio = theory.Figure{}, theory.Figure{}, theory.Figure{}
		if (l.Name != "queue factor" || hasFactor(d)) && !owned(d, &l) {
			levers, documents = append(levers, l), append(documents, applyLever(d, l.Setting))
		}
	}
	if rule, changed, ok := ruleLever(d); ok {
		rule.Setting = asDrop
		levers, documents = append(levers, rule), append(documents, changed)
	}
	under, _, err = parallel.All(context.Background(), len(levers), nil, func(i int) (TargetLever, error) {
		summary := simulateLever(&levers[i], documents[i], setting, base)
		return leverOf(levers[i].Change, summary, base), nil
	})
	return levers, under, err
}

// hasFactor reports whether the queue's size is a choice of its own: what bounded
// and threshold admit decides theirs.
func hasFactor(d config.Config) bool {
	switch d.Queue.Policy {
	case "bounded", "threshold":
		return false
	}
	return d.Schedule != theory.PolicySynchronous
}

// ruleLever turns the number that bounds staleness under a policy; ok is false
// where the policy has none.
func ruleLever(d config.Config) (l theory.Lever, changed config.Config, ok bool) {
	l = theory.Lever{Name: "budget", HoldsFixed: "everything else"}
	q := &d.Queue
	switch {
	case d.Schedule == theory.PolicySynchronous:
		return l, d, false
	case q.Policy == "threshold" && q.StalenessThreshold > 0:
		l.Change = fmt.Sprintf("staleness_threshold %.3g → %.3g", q.StalenessThreshold, q.StalenessThreshold/2)
		q.StalenessThreshold /= 2
	case q.Policy == "bounded" && q.Eta/2 >= float64(d.Sync.Every-1) && q.Eta > 0:
		l.Change = fmt.Sprintf("eta %.3g → %.3g", q.Eta, q.Eta/2)
		q.Eta /= 2
	case q.Policy == "max":
		l.Change = fmt.Sprintf("max_staleness %d → %d", q.MaxStaleness, q.MaxStaleness+1)
		q.MaxStaleness++
	default:
		return l, d, false
	}
	return l, d, true
}

// simulateLever fills in what one change, already made in the document, buys. It returns what was simulated, nil where
// that cannot be.
func simulateLever(l *theory.Lever, changed config.Config, setting theory.Input, base metrics.Summary) *metrics.Summary {
	changed.Steps.Measured = min(max(leverRollouts/changed.Train.Batch, answerStepsMin), answerStepsMax)
	changed.Steps.Warmup = min(changed.Steps.Warmup, changed.Steps.Measured)
	// The rules stay the document's; the lever was reckoned under drop.
	in := l.Setting
	in.Policy, in.Select, in.MaxStaleness = setting.Policy, setting.Select, setting.MaxStaleness
	in.DecodeTokensPerS = setting.DecodeTokensPerS
	if len(changed.Modelled.DecodeCurve) > 0 {
		in.DecodeTokensPerS = changed.DecodeThroughputTokensPerS() / float64(changed.Rollout.Concurrency)
	}
	cfg, err := Devices(Case{Document: changed, Setting: in})
	if err != nil {
		l.Note = "cannot be simulated: " + err.Error()
		return nil
	}
	res, err := sim.Run(cfg)
	if err != nil {
		l.Note = "the run would stand still, or its rules do not allow this"
		return nil
	}
	l.StalenessMean = theory.Known(res.Summary.Staleness.Mean)
	if base.PeriodS.Mean > 0 {
		l.PeriodRatio = theory.Known(res.Summary.PeriodS.Mean / base.PeriodS.Mean)
	}
	return &res.Summary
}

// applyLever is the document with a lever's counts, in whole groups and with the
// engines' slots in proportion.
func applyLever(d config.Config, in theory.Input) config.Config {
	share := in.ConcurrencyRollouts / float64(d.Rollout.Concurrency)
	d.Engines = append([]config.Engine(nil), d.Engines...)
	d.Rollout.Concurrency = 0
	for i := range d.Engines {
		d.Engines[i].Slots = max(int(math.Round(float64(d.Engines[i].Slots)*share)), 1)
		d.Rollout.Concurrency += d.Engines[i].Slots
	}
	batch := int(math.Round(in.BatchRollouts))
	if d.Queue.Capacity > 0 {
		d.Queue.Capacity = d.Queue.Capacity / d.Train.Batch * batch
	}
	d.Train.Batch = batch
	if hasFactor(d) {
		d.Queue.Factor, d.Queue.Capacity = in.QueueFactor, 0
	}
	d.Modelled.Sync.TimeS = math.Max(0, in.SyncTimeS)
	if d.Sync.Mode == theory.SyncInFlight {
		d.Modelled.Sync.TimeS = math.Max(0, in.SyncTimeS-d.Modelled.Sync.LoadS)
	}
	return d
}

// leverBasis says on what levers rest where they are simulated.
func leverBasis(l []theory.Lever) string {
	return fmt.Sprintf("the %d levers are simulated, too, from about %d rollouts each", len(l), leverRollouts)
}
