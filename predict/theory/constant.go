package theory

// Constant is a number in a form that the settings do not give.
type Constant struct {
	Name   string
	Value  float64
	Source string // derived, or fitted to what
}

// Constants are all of them, those of tolerances left out.
func Constants() []Constant {
	return []Constant{
		{"barrier shift of the stock, in deviations of a step", overshoot, "derived: −ζ(½)/√(2π), the mean overshoot of a normal random walk over a barrier (Siegmund, 1979)"},
		{"the same for a queue that holds no stock", overshootAtOnce, "derived: √(π/8), which makes the shortage of a single batch at ρ = 1 its exact 1/√(2π) deviations"},
		{"reach of an empty stock, in deviations of a step", emptyReach, "derived: √½, the slope of the probability that a normal random walk with drift never rises (Spitzer, 1956)"},
		{"share of the stock's memory over which arrivals add up", memoryShare, "fitted: once, to simulations of B = 128 with q 2, 3 and 5, tailness 30 to 90 and ρ 0.9 to 1.1, where 0.3 and 0.7 do nearly as well; the held-out cells, of other batches, confirm it"},
	}
}
