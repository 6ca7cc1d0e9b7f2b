package serving

import "sort"

// Result is what a run gave.
type Result struct {
	// Calls in the order in which they came.
	Calls []Call
	// Replicas that decode, and those that read prompts apart.
	Replicas, Prefill []Replica
	// EndS is when the last call ended. Events counts what happened: calls that came, began, ended and were preempted,
	// caches that were loaded, and steps or rows of like steps of engines. Steps counts engines' steps.
	EndS          float64
	Events, Steps int64
}

// Call is one request, in seconds from the start and in tokens.
type Call struct {
	// Session counts sessions in the order of the input, sub-agents after the one that starts them; Index its calls.
	Session, Index int
	// Replica decoded it. Prefill read its prompt: the same replica, or one of those apart.
	Replica, Prefill int
	// ArriveS is when it came; FirstS when its first token did, and EndS its last.
	ArriveS, FirstS, EndS float64
	Input, Output         int
	// Found are the tokens of its prompt that were in the replica's cache, Loaded those that came from its host's.
	Found, Loaded int
	// Preemptions are how often it lost its blocks.
	Preemptions int
}

// TTFT is the time to the first token, in seconds.
func (c *Call) TTFT() float64 { return c.FirstS - c.ArriveS }

// TPOT is the time of each later token, in seconds; 0 for a call of one.
func (c *Call) TPOT() float64 {
	if c.Output < 2 {
		return 0
	}
	return (c.EndS - c.FirstS) / float64(c.Output-1)
}

// Latency is the time of the whole call, in seconds.
func (c *Call) Latency() float64 { return c.EndS - c.ArriveS }

// Replica is what one engine did.
type Replica struct {
	// Calls that ended here; Output tokens that it generated and Prefilled ones that it read, repeated reading included.
	Calls             int
	Output, Prefilled int64
	// BusyS is the time that its steps took, PeakUse the largest share of its cache that calls used at once.
	BusyS, PeakUse float64
	// Preemptions of its calls; Evicted blocks that could have been found until others needed the room.
	Preemptions int
	Evicted     int64
	// LastS is when its last step ended.
	LastS float64
}

// OutputTokensPerS is the mean rate from the first arrival to the last end.
func (r *Result) OutputTokensPerS() float64 {
	if len(r.Calls) == 0 {
		return 0
	}
	total := 0
	for i := range r.Calls {
		total += r.Calls[i].Output
	}
	return float64(total) / (r.EndS - r.Calls[0].ArriveS)
}

// HitRate is the share of prompt tokens that calls found in a cache, a host's included.
func (r *Result) HitRate() float64 {
	found, all := 0, 0
	for i := range r.Calls {
		found += r.Calls[i].Found + r.Calls[i].Loaded
		all += r.Calls[i].Input
	}
	if all == 0 {
		return 0
	}
	return float64(found) / float64(all)
}

// Preemptions counts how often calls lost their blocks.
func (r *Result) Preemptions() int {
	n := 0
	for i := range r.Calls {
		n += r.Calls[i].Preemptions
	}
	return n
}

// Distribution is a figure over calls.
type Distribution struct{ Mean, P50, P90, P95, P99, Max float64 }

// Over computes a figure's distribution over calls, such as (*Call).TTFT. It is zero for no calls.
func Over(calls []Call, figure func(*Call) float64) Distribution {
	if len(calls) == 0 {
		return Distribution{}
	}
	values, sum := make([]float64, len(calls)), 0.0
	for i := range calls {
		values[i] = figure(&calls[i])
		sum += values[i]
	}
	sort.Float64s(values)
	at := func(share float64) float64 { return values[min(int(share*float64(len(values))), len(values)-1)] }
	return Distribution{Mean: sum / float64(len(values)), P50: at(0.5), P90: at(0.9), P95: at(0.95), P99: at(0.99), Max: values[len(values)-1]}
}
