package run

// Gap is the mean time that rollouts took beyond the decode steps of their tokens, in seconds, and how many there were.
func (p *Prober) Gap(tokenS float64) (float64, int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	sum, n := 0.0, 0
	for _, rollouts := range p.done {
		for _, r := range rollouts {
			sum += float64(r.ns)/1e9 - tokenS*float64(r.sample.ResponseTokens())
			n++
		}
	}
	return max(sum/float64(max(n, 1)), 0), n
}
