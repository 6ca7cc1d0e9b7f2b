package plan

// costPerHour is what a setting costs while it runs: GPUs on both sides, and the
// CPUs of the sandboxes that its rollouts hold, one for every slot.
func (p *Problem) costPerHour(s Setting) float64 {
	return p.rolloutPerHour(s) + float64(s.TrainGPUs)*p.Document.Prices.GPUHour
}

// rolloutPerHour is the rollout side's part of it.
func (p *Problem) rolloutPerHour(s Setting) float64 {
	prices := p.Document.Prices
	return p.rolloutGPUsPerHour(s) + float64(s.Concurrency())*prices.CPUsPerSandbox*prices.CPUHour
}

// rolloutGPUsPerHour is that of the rollout GPUs alone, without sandboxes.
func (p *Problem) rolloutGPUsPerHour(s Setting) float64 {
	prices := p.Document.Prices
	gpu := prices.GPUHour
	if prices.RolloutGPUHour > 0 || p.Document.Given("prices.rollout_gpu_hour") {
		gpu = prices.RolloutGPUHour
	}
	return float64(s.RolloutGPUs) * gpu
}

// priced reports whether the document says what anything costs.
func (p *Problem) priced() bool {
	prices := p.Document.Prices
	return prices.GPUHour > 0 || prices.RolloutGPUHour > 0 || prices.CPUHour*prices.CPUsPerSandbox > 0
}
