package plan

import (
	"math"

	"github.com/headway-rl/headway/predict/schedule"
	"github.com/headway-rl/headway/predict/theory"
)

// Figures are what a setting comes to, predicted or simulated.
type Figures struct {
	// Staleness in versions: mean and quantiles.
	StalenessMean float64 `json:"staleness_mean"`
	StalenessP50  int     `json:"staleness_p50"`
	StalenessP95  int     `json:"staleness_p95"`
	StalenessP99  int     `json:"staleness_p99"`
	// PQS and IQS are its parts.
	PQS float64 `json:"pqs"`
	IQS float64 `json:"iqs"`
	// Utilization is ρ, rollout over train throughput.
	Utilization float64 `json:"utilization"`
	// PeriodS is the time between two updates, in seconds.
	PeriodS float64 `json:"period_s"`
	// PerRolloutS is t/B, PerRootS t/√B and UpdateS t/√B_eff, the noise-adjusted update time, in seconds.
	PerRolloutS float64 `json:"period_per_rollout_s"`
	PerRootS    float64 `json:"period_per_root_batch_s"`
	UpdateS     float64 `json:"update_s"`
	// EffectiveBatch is B_eff, the independent rollouts that a batch is worth.
	EffectiveBatch float64 `json:"effective_batch_rollouts"`
	// ClipFraction is the share of tokens expected outside the trainer's band; 0 where modelled.train.drift_nats_per_version is not given.
	ClipFraction float64 `json:"clip_fraction,omitempty"`
	// WasteShare is the share of generated groups that are never trained on.
	WasteShare float64 `json:"waste_share"`
	// LengthBias is mean trained over mean sampled length, less 1.
	LengthBias float64 `json:"length_bias"`
	// CostPerStep is the price of an update, CostPerMillionTokens of a million trained response tokens.
	CostPerStep          float64 `json:"cost_per_step"`
	CostPerMillionTokens float64 `json:"cost_per_million_trained_tokens"`
	// CostPerUpdate is the price of a noise-adjusted update: cost per step over √B_eff.
	CostPerUpdate float64 `json:"cost_per_update"`
}

// Candidate is a setting with what is known of it.
type Candidate struct {
	Setting
	// ConcurrencyRollouts is C.
	ConcurrencyRollouts int `json:"concurrency_rollouts"`
	// DecodeTokensPerS is the speed of one slot, prefill counted in; StepS the train step alone; SyncS one weight sync.
	DecodeTokensPerS float64 `json:"decode_tokens_per_s"`
	StepS            float64 `json:"step_s"`
	SyncS            float64 `json:"sync_s"`
	// Predicted are the closed form's figures; nil where no closed form covers the setting, and Uncovered says why.
	Predicted *Figures `json:"predicted"`
	Uncovered string   `json:"uncovered,omitempty"`
	// Simulated are the simulator's, nil for what was not simulated.
	Simulated *Simulated `json:"simulated"`
}

// Best are the figures to go by: the simulator's where there are any.
func (c *Candidate) Best() Figures {
	switch {
	case c.Simulated != nil:
		return c.Simulated.Figures
	case c.Predicted != nil:
		return *c.Predicted
	}
	return Figures{}
}

// evaluator turns settings into figures by closed forms. It is safe for
// concurrent use.
type evaluator struct {
	problem   *Problem
	estimator *theory.Estimator
	meanS     float64 // E[environment] in seconds
	tokens    float64 // E[L]
}

// newEvaluator prepares one for a problem.
func newEvaluator(p *Problem) (*evaluator, error) {
	estimator, err := p.estimator()
	if err != nil {
		return nil, err
	}
	e := &evaluator{problem: p, estimator: estimator, tokens: p.Lengths.Mean()}
	if p.Environment != nil && !p.Environment.Zero() {
		e.meanS = p.Environment.Mean()
		if e.meanS > 0 {
			e.meanS /= 1e9
		}
	}
	return e, nil
}

// rates fills in the speeds that follow from where a setting's GPUs are.
func (e *evaluator) rates(c *Candidate) {
	m := &e.problem.Machine
	c.ConcurrencyRollouts = c.Concurrency()
	c.DecodeTokensPerS = e.slotSpeed(float64(c.SlotsPerReplica))
	c.StepS = m.updateS(float64(c.BatchRollouts), e.tokens+m.PromptTokens, c.TrainGPUs)
	c.SyncS = m.SyncS(c.RolloutGPUs, c.TrainGPUs)
}

// slotSpeed is s_R with so many slots on a replica, of which those whose rollout
// waits for its environment do not decode. Reading prompts takes the whole
// replica, so every token of a rollout bears its slots' share of it.
func (e *evaluator) slotSpeed(slots float64) float64 {
	m := &e.problem.Machine
	active, speed := slots, 0.0
	for range 4 { // who waits depends on the speed, which depends on who waits: a contraction
		speed = 1 / m.tokenS(active, e.tokens)
		active = max(slots/(1+e.meanS*speed/e.tokens), 1)
		if e.meanS == 0 {
			break
		}
	}
	return speed
}

// point is a candidate in theory's words.
func (e *evaluator) point(c *Candidate) theory.Point {
	d := &e.problem.Document
	p := theory.Point{
		ConcurrencyRollouts: float64(c.ConcurrencyRollouts), BatchRollouts: float64(c.BatchRollouts), QueueFactor: c.QueueFactor,
		DecodeTokensPerS: c.DecodeTokensPerS, StepS: c.StepS,
		Policy: c.Policy, Select: c.Select, Start: d.Rollout.Start, MaxStaleness: c.MaxStaleness,
		StalenessThreshold: c.StalenessThreshold, PartialRollout: c.Partial,
		Acceptance: d.Modelled.Filter.Acceptance,
		SyncTimeS:  c.SyncS, SyncMode: d.Sync.Mode, SyncTrainer: d.Sync.Trainer, SyncEvery: c.SyncEvery,
	}
	if p.SyncMode == theory.SyncInFlight {
		p.SyncTimeS += d.Modelled.Sync.LoadS // engines generate through it
	}
	if p.SyncMode == theory.SyncRestart || p.SyncMode == theory.SyncDrain {
		p.SyncMode = theory.SyncInFlight // the nearest there is, to choose what is simulated: [Problem.Uncovered]
	}
	return p
}

// evaluate fills in the prediction of a candidate whose setting is given.
func (e *evaluator) evaluate(c *Candidate) {
	e.rates(c)
	switch {
	case c.Hold > 0 || c.Policy == policyBounded:
		c.Uncovered = "hold and bounded admission choose when groups open, which no closed form covers"
		return
	case c.Policy == policyThreshold: // its mean staleness has a closed form, its period has none
		c.Uncovered = "a threshold leaves slots empty before every sync, and no closed form has the period that makes"
		return
	}
	if c.Policy == theory.PolicySynchronous {
		e.barrier(c)
		return
	}
	est := e.estimator.Estimate(e.point(c))
	if !est.Covered || est.PeriodS <= 0 {
		c.Uncovered = est.Reason.Sentence()
		return
	}
	if e.pausedOutside(c, est.PeriodS) {
		c.Uncovered = "tools and environments go on while engines pause, and no closed form covers that for so long a sync"
		return
	}
	f := &Figures{
		StalenessMean: est.Mean, StalenessP50: est.P50, StalenessP95: est.P95, StalenessP99: est.P99,
		PQS: est.PQS, IQS: est.IQS, Utilization: est.Utilization, PeriodS: est.PeriodS, WasteShare: est.DroppedShare,
	}
	e.derive(c, f)
	c.Predicted = f
}

// pauseShare is the largest part of a period that a pause may overlap with time
// outside the engine and still be added to every rollout, as closed forms do.
const pauseShare = 0.02

// pausedOutside reports whether pauses are long against a period for rollouts that
// are outside their engine meanwhile and go on there.
func (e *evaluator) pausedOutside(c *Candidate, periodS float64) bool {
	if e.problem.Document.Sync.Mode != theory.SyncPause || e.meanS == 0 {
		return false
	}
	outside := e.meanS / (e.meanS + e.tokens/c.DecodeTokensPerS)
	return c.SyncS/float64(max(c.SyncEvery, 1))*outside > pauseShare*periodS
}

// barrier predicts the synchronous schedule on separate GPUs: nothing is stale,
// and a step is the barrier, with engines that get faster as they run empty, then
// the update and the sync.
func (e *evaluator) barrier(c *Candidate) {
	in := updatesAlone(e.problem, c).WithDefaults()
	if err := in.Validate(); err != nil {
		c.Uncovered = err.Error()
		return
	}
	f := &Figures{PeriodS: in.ClosedS(in.Arm(schedule.Synchronous))}
	f.Utilization = e.balance(c)
	e.derive(c, f)
	c.Predicted = f
}

// derive fills in what follows from the period: noise-adjusted times and prices.
func (e *evaluator) derive(c *Candidate, f *Figures) {
	f.PerRolloutS = f.PeriodS / float64(c.BatchRollouts)
	f.PerRootS = f.PeriodS / math.Sqrt(float64(c.BatchRollouts))
	f.EffectiveBatch = e.effectiveBatch(c, f)
	f.ClipFraction = e.clipFraction(f)
	root := math.Sqrt(f.EffectiveBatch)
	f.UpdateS = f.PeriodS / root
	f.CostPerStep = f.PeriodS / 3600 * e.problem.costPerHour(c.Setting)
	f.CostPerMillionTokens = 1e6 * f.CostPerStep / (float64(c.BatchRollouts) * e.tokens * (1 + f.LengthBias))
	f.CostPerUpdate = f.CostPerStep / root
}
