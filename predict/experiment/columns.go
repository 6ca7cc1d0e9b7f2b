package experiment

import (
	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/predict/theory"
)

// columnKind is the type of a column's values.
type columnKind uint8

const (
	numberColumn columnKind = iota
	wholeColumn
	textColumn
	booleanColumn
)

// column is one of a grid's file, after the grid's own keys.
type column struct {
	name string
	kind columnKind
	// mean: it is empty where the means have not settled.
	mean bool
	// doc says what it means; docs/reference/columns.md has it.
	doc string
	// average, if not nil, is the column's value of one seed; the column is its mean
	// over the seeds. Else value is the column's, nil for an empty one.
	average func(*Simulation) float64
	value   func(*Point) any
}

// columns are the columns of a grid's file in their order.
var columns []column

func init() {
	columns = []column{
		{name: "seed", kind: wholeColumn, doc: "the first seed", value: func(p *Point) any { return int64(p.seed) }},
		{name: "seeds", kind: wholeColumn, doc: "how many seeds were simulated, counting on from the first", value: func(p *Point) any { return int64(p.Seeds) }},
		{name: "settled", kind: booleanColumn, doc: "whether the means of at least nine in ten seeds have settled", value: func(p *Point) any { return p.Settled }},
		{name: "note", kind: textColumn, doc: "why the means have not settled, or why the setting could not be simulated", value: func(p *Point) any { return noteOf(p) }},
		{name: "staleness_mean", mean: true, doc: "mean staleness of trained groups, in policy versions", average: func(s *Simulation) float64 { return s.Staleness.Mean }},
		{name: "staleness_mean_low", mean: true, doc: "lower end of its 95 % interval: by batch means of one seed, by Student's t over several", value: endOf(func(p *Point) *[2]float64 { return p.Staleness.Interval }, 0)},
		{name: "staleness_mean_high", mean: true, doc: "upper end of it", value: endOf(func(p *Point) *[2]float64 { return p.Staleness.Interval }, 1)},
		{name: "staleness_p50", kind: wholeColumn, mean: true, doc: "median staleness of the groups of all seeds", value: staleness(0.50)},
		{name: "staleness_p95", kind: wholeColumn, mean: true, doc: "95 % of the groups are at most as stale", value: staleness(0.95)},
		{name: "staleness_p99", kind: wholeColumn, mean: true, doc: "99 % of the groups are at most as stale", value: staleness(0.99)},
		{name: "staleness_max", kind: wholeColumn, mean: true, doc: "the stalest group trained", value: staleness(1)},
		{name: "staleness_mean_syncs", mean: true, doc: "mean staleness counted in weight syncs instead of versions", average: func(s *Simulation) float64 { return s.Staleness.MeanSyncs }},
		{name: "pqs_mean", mean: true, doc: "mean pre-queue staleness, in versions", average: func(s *Simulation) float64 { return s.PQS.Mean }},
		{name: "iqs_mean", mean: true, doc: "mean in-queue staleness, in versions", average: func(s *Simulation) float64 { return s.IQS.Mean }},
		{name: "token_staleness_mean", mean: true, doc: "mean staleness of trained tokens, in versions", average: func(s *Simulation) float64 { return s.TokenStaleness.Mean }},
		{name: "period_s", mean: true, doc: "mean train period, in seconds", average: func(s *Simulation) float64 { return s.PeriodS.Mean }},
		{name: "period_s_low", mean: true, doc: "lower end of its 95 % interval", value: endOf(func(p *Point) *[2]float64 { return p.PeriodS.Interval }, 0)},
		{name: "period_s_high", mean: true, doc: "upper end of it", value: endOf(func(p *Point) *[2]float64 { return p.PeriodS.Interval }, 1)},
		{name: "step_s", doc: "mean train step alone, in seconds", average: func(s *Simulation) float64 { return s.StepS.Mean }},
		{name: "utilization", doc: "measured ρ: rollouts produced per second over rollouts a busy trainer consumes per second", average: func(s *Simulation) float64 { return s.Utilization }},
		{name: "trainer_idle_ratio", doc: "share of the time in which no train step runs", average: func(s *Simulation) float64 { return s.TrainerIdleRatio }},
		{name: "rollout_idle_ratio", doc: "share of slot time in which a slot holds no rollout", average: func(s *Simulation) float64 { return s.RolloutIdleRatio }},
		{name: "production_rollouts_per_s", doc: "rollouts finished per second", average: func(s *Simulation) float64 { return s.Throughput.ProductionRolloutsPerS }},
		{name: "effective_rollouts_per_s", doc: "those of groups that were not filtered", average: func(s *Simulation) float64 { return s.Throughput.EffectiveRolloutsPerS }},
		{name: "consumption_rollouts_per_s", doc: "rollouts trained per second of train step", average: func(s *Simulation) float64 { return s.Throughput.ConsumptionRolloutsPerS }},
		{name: "consumption_rollouts_per_wall_s", doc: "rollouts trained per second, waits included", average: func(s *Simulation) float64 { return s.Throughput.ConsumptionRolloutsPerWallS }},
		{name: "trained_tokens_per_s", doc: "response tokens trained per second, waits included", average: func(s *Simulation) float64 {
			return s.Throughput.ConsumptionRolloutsPerWallS * s.Length.TrainedMeanTokens
		}},
		{name: "binding", kind: textColumn, doc: "what limits the rate of updates, in the first seed: rollout, train, environment, sync, sandbox, verifier, scorer, prefill, validation, or admission (a rule has both sides wait)", value: func(p *Point) any { return p.binding }},
		{name: "acceptance", doc: "share of ready groups that were not filtered", average: func(s *Simulation) float64 { return s.Acceptance }},
		{name: "wasted_share", doc: "share of the response tokens that ended in the window and were not trained", average: func(s *Simulation) float64 { return s.Waste.WastedShare }},
		{name: "tail_multiplier", doc: "mean time of a group's longest rollout over that of a rollout", average: func(s *Simulation) float64 { return s.TailMultiplier }},
		{name: "sampled_mean_tokens", doc: "mean length of finished rollouts", average: func(s *Simulation) float64 { return s.Length.SampledMeanTokens }},
		{name: "trained_mean_tokens", doc: "mean length of trained rollouts", average: func(s *Simulation) float64 { return s.Length.TrainedMeanTokens }},
		{name: "length_ratio", doc: "trained over sampled mean length: below 1, short rollouts are favoured", average: lengthRatio},
		{name: "truncated_share", doc: "share of finished rollouts at the length cap", average: func(s *Simulation) float64 { return s.Length.TruncatedShare }},
		{name: "rollout_s", doc: "mean time from a rollout's start to its score, in seconds", average: func(s *Simulation) float64 { return s.Latency.EndToEndS }},
		{name: "rollout_decode_s", doc: "the part of it in which it generates", average: func(s *Simulation) float64 { return s.Latency.DecodeS }},
		{name: "backlog_rollouts", doc: "mean number of rollouts that stand interrupted", average: func(s *Simulation) float64 { return s.Partial.BacklogMean }},
		{name: "closed_form_staleness_mean", doc: "the published closed form's mean staleness; empty where none covers the rules", value: closedFigure(func(p Predicted) theory.Figure { return p.StalenessMean })},
		{name: "closed_form_pqs", doc: "its pre-queue staleness", value: closedFigure(func(p Predicted) theory.Figure { return p.PQS })},
		{name: "closed_form_iqs", doc: "its in-queue staleness", value: closedFigure(func(p Predicted) theory.Figure { return p.IQS })},
		{name: "closed_form_period_s", doc: "its train period, in seconds", value: closedFigure(func(p Predicted) theory.Figure { return p.PeriodS })},
		{name: "corrected_staleness_mean", doc: "the mean staleness after the corrections", value: closedFigure(func(p Predicted) theory.Figure { return p.CorrectedStalenessMean })},
		{name: "corrected_period_s", doc: "the train period after the corrections, in seconds", value: closedFigure(func(p Predicted) theory.Figure { return p.CorrectedPeriodS })},
		{name: "warmup_steps", doc: "train steps left out at the beginning, the mean over the seeds", average: func(s *Simulation) float64 { return float64(s.Warmup.Steps) }},
		{name: "measured_steps", doc: "train steps measured in each seed", average: func(s *Simulation) float64 { return float64(s.Steps) }},
		{name: "events", kind: wholeColumn, doc: "events simulated, of all seeds", value: func(p *Point) any { return p.events }},
	}
}

// endOf is one end of an interval, nil for none.
func endOf(interval func(*Point) *[2]float64, which int) func(*Point) any {
	return func(p *Point) any {
		if i := interval(p); i != nil {
			return i[which]
		}
		return nil
	}
}

// staleness is a quantile of it.
func staleness(share float64) func(*Point) any {
	return func(p *Point) any { return int64(metrics.Quantile(p.histogram, share)) }
}

// closedFigure is one of the closed form's, nil where it is unknown.
func closedFigure(of func(Predicted) theory.Figure) func(*Point) any {
	return func(p *Point) any {
		if v, ok := of(p.Predicted).Value(); ok {
			return v
		}
		return nil
	}
}

func lengthRatio(s *Simulation) float64 {
	if s.Length.SampledMeanTokens == 0 {
		return 0
	}
	return s.Length.TrainedMeanTokens / s.Length.SampledMeanTokens
}

// noteOf says what is wrong with a setting, nil for nothing.
func noteOf(p *Point) any {
	switch {
	case p.failed != nil:
		return p.Error
	case !p.Settled:
		return p.Why
	}
	return nil
}

// of is the column's value of a setting, nil for an empty one: what a setting that
// failed has not got, and a mean that has not settled, unless that is accepted.
func (c *column) of(p *Point, accept bool) any {
	switch {
	case p.failed != nil && c.name != "seed" && c.name != "seeds" && c.name != "note":
		return nil
	case c.mean && !p.shown(accept):
		return nil
	case c.average != nil:
		return p.averages[c.name]
	}
	return c.value(p)
}
