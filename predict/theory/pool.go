package theory

// Pool is a service of few servers, such as scorers or a verifier. Every rollout of a closed number passes it after it was
// generated, and holds its slot meanwhile. Times to get there and in service are taken as exponential: the machine-repair model.
// Its rate does not depend on how the times to get there are spread.
type Pool struct {
	// Slots is C, the rollouts in flight: at least 1. Servers serve one of them each: at least 1.
	Slots, Servers int
	// AwayS is the mean time of a rollout before it comes to the pool, in seconds; above 0.
	AwayS float64
	// ServiceS is the mean time in service, in seconds; 0 for none.
	ServiceS float64
}

// PoolFigures are what a pool comes to in the long run.
type PoolFigures struct {
	// RolloutsPerS pass the pool, at most MostPerS: Servers/ServiceS, 0 for no limit.
	RolloutsPerS, MostPerS float64
	// WaitS is the mean time that a rollout waits for a server, in seconds. Busy is the mean number of servers at work.
	WaitS, Busy float64
}

// poolScale keeps the weights of states, whose sum alone matters, within what a float holds.
const poolScale = 1e100

// Figures are those of the stationary state: of n rollouts at the pool, births at rate (C-n)/AwayS and deaths at
// min(n, Servers)/ServiceS.
func (p Pool) Figures() PoolFigures {
	if p.ServiceS <= 0 {
		return PoolFigures{RolloutsPerS: float64(p.Slots) / p.AwayS}
	}
	weight, sum, waiting, busy := 1.0, 0.0, 0.0, 0.0
	for n := 0; n <= p.Slots; n++ {
		sum += weight
		waiting += weight * float64(max(n-p.Servers, 0))
		busy += weight * float64(min(n, p.Servers))
		weight *= float64(p.Slots-n) / p.AwayS * p.ServiceS / float64(min(n+1, p.Servers))
		if weight > poolScale {
			weight, sum, waiting, busy = weight/poolScale, sum/poolScale, waiting/poolScale, busy/poolScale
		}
	}
	busy /= sum
	rate := busy / p.ServiceS
	return PoolFigures{RolloutsPerS: rate, MostPerS: float64(p.Servers) / p.ServiceS, WaitS: waiting / sum / rate, Busy: busy}
}

// Slowed is the share of rollouts a second that waiting for the pool costs.
func (p Pool) Slowed() float64 {
	f := p.Figures()
	return f.WaitS / (p.AwayS + p.ServiceS + f.WaitS)
}

// PoolServers is the fewest servers for which waiting costs at most such a share of rollouts a second; above 0.
func PoolServers(p Pool, share float64) int {
	low, high := 1, max(p.Slots, 1) // nobody waits where every rollout has a server
	for low < high {
		if p.Servers = (low + high) / 2; p.Slowed() <= share {
			high = p.Servers
		} else {
			low = p.Servers + 1
		}
	}
	return low
}
