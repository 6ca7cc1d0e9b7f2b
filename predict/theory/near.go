package theory

import "math"

// settlingMemories is how many times the queue's memory a run takes to settle:
// what is left of where the stock began is then below 1 %.
const settlingMemories = 5

// Settling returns about how many train steps a run takes before its means say
// anything. It sums five times the memory of the stock and five lives of a
// group. The memory is the relaxation time 1/(π²c²/(2G(q−1)²) + (ρ−1)²G/(2c²))
// of a reflected Brownian motion. Near ρ = 1 the five come to about (q−1)²·G in
// all. c² is the index of dispersion over that time, staleness the mean in
// versions. Valid for queue-drop; an unbounded queue above ρ = 1 never settles.
func Settling(queueFactor, rho, c2, groups, staleness float64) float64 {
	memory := 0.0
	if queueFactor > 1 {
		memory = stockMemory(queueFactor, rho, c2, groups)
	}
	return math.Ceil(5*(1+staleness) + settlingMemories*memory)
}

// normalCDF is Φ, accurate in both tails.
func normalCDF(z float64) float64 { return math.Erfc(-z/math.Sqrt2) / 2 }
