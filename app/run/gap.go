package run

import (
	"github.com/headway-rl/headway/loop/port"
)

// ResponseTokens is the length of a sample's response.
func ResponseTokens(s port.Sample) int {
	n := 0
	for _, m := range s.LossMask {
		n += int(m)
	}
	return n
}

// Gap is the mean time that rollouts took beyond the decode steps of their tokens, in seconds, and how many there were.
func (p *Prober) Gap(tokenS float64) (float64, int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	sum, n := 0.0, 0
	for _, rollouts := range p.done {
		for _, r := range rollouts {
			sum += float64(r.ns)/1e9 - tokenS*float64(ResponseTokens(r.sample))
			n++
		}
	}
	return max(sum/float64(max(n, 1)), 0), n
}
