package theory

// Budget is a fixed number of GPUs to be split between rollout and training
// (docs/theory-rules.md). All fields must be positive.
type Budget struct {
	GPUs               float64 // N = N_R + N_T
	RolloutTokensPerS  float64 // c_R, tokens/s a rollout GPU generates
	TrainTokensPerS    float64 // c_T, tokens/s a train GPU consumes
	BatchRollouts      float64 // B
	MeanTokens         float64 // E[L], the capped mean
	SlotsPerRolloutGPU float64 // C/N_R, held fixed along a split; 0 where C is not needed
	MinimumTrainGPUs   float64 // memory floor of the trainer; 0 for none
	MinimumRolloutGPUs float64 // one whole replica; 0 for none
}

// Beta returns β* = c_T/c_R.
func (b Budget) Beta() float64 { return b.TrainTokensPerS / b.RolloutTokensPerS }

// Split returns the GPUs on each side at utilization ρ = (c_R/c_T)·(N_R/N_T), as
// real numbers. Whole replicas are the caller's constraint. Result feasible is
// false where a side falls below its minimum.
func (b Budget) Split(rho float64) (rollout, train float64, feasible bool) {
	ratio := rho * b.Beta()
	train = b.GPUs / (1 + ratio)
	rollout = b.GPUs - train
	return rollout, train, rollout >= b.MinimumRolloutGPUs && train >= b.MinimumTrainGPUs
}

// PeriodS returns t_period(ρ) = B·E[L]·(1/c_T + ρ/c_R)/(N·min(1, ρ)) in
// seconds. It falls on (0,1), rises on (1,∞) and is least at ρ = 1: staleness
// and throughput form a frontier.
func (b Budget) PeriodS(rho float64) float64 {
	return b.BatchRollouts * b.MeanTokens * (1/b.TrainTokensPerS + rho/b.RolloutTokensPerS) / (b.GPUs * min(1, rho))
}

// Concurrency returns C at utilization ρ, with C proportional to the rollout
// GPUs. Holding C fixed while moving the split would reverse the rule about
// which side to prefer.
func (b Budget) Concurrency(rho float64) float64 {
	rollout, _, _ := b.Split(rho)
	return rollout * b.SlotsPerRolloutGPU
}
