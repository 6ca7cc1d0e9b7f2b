package foreign

import (
	"math"

	"gonum.org/v1/gonum/integrate/quad"
	"gonum.org/v1/gonum/stat/distuv"
)

// normalP95 is the standard normal's 95 % quantile.
const normalP95 = 1.6448536269514722

// lognormalTail is the tail multiplier of n draws of a lognormal: E[largest] / E[one], which is
// ∫ n φ(z) Φ(z)^(n−1) exp(σz − σ²/2) dz.
func lognormalTail(sigma, n float64) float64 {
	const points, below, above = 400, -9.0, 9.0
	normal := distuv.UnitNormal
	return quad.Fixed(func(z float64) float64 {
		return n * normal.Prob(z) * math.Pow(normal.CDF(z), n-1) * math.Exp(sigma*z-sigma*sigma/2)
	}, below, above+sigma, points, nil, 0)
}
