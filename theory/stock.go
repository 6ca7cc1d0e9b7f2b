package theory

import "math"

// stock is the stationary distribution of the groups that wait above the batch
// being taken, in batches, just before a selection. It is the chain
//
//	u' = clip(u + N/G − 1, 0, q−1),   N/G normal of mean ρ, variance c²/G
//
// on a grid, where [ReflectedStock] is its continuous limit: the chain is
// reflected once per step only, which matters away from ρ = 1.
type stock struct {
	levels  []float64 // stock in batches, ascending
	weights []float64 // their probabilities
}

// maxStockCells bounds the grid, whose linear system costs its cube.
const maxStockCells = 96

// newStock solves the chain on the part of [0, q−1] where the stock is: away
// from ρ = 1 that is a layer at one end. Where a grid cannot resolve one step's
// spread in it, the ends matter little and the continuous density is used.
func newStock(queueFactor, rho, c, groups float64) stock {
	width := queueFactor - 1
	if width <= 0 {
		return stock{[]float64{0}, []float64{1}}
	}
	spread := c / math.Sqrt(groups)
	part := width
	if kappa := math.Abs(stockSlope(rho, c, groups)); kappa > 0 {
		part = min(width, max(30/kappa, 6*spread))
	}
	cells := math.Ceil(2 * part / max(spread, 1e-12))
	if cells > maxStockCells {
		return limitStock(queueFactor, rho, c, groups)
	}
	first := 0.0
	if rho > 1 {
		first = width - part
	}
	weights, ok := chain(max(int(cells), 12), part, rho-1, spread)
	if !ok {
		return limitStock(queueFactor, rho, c, groups)
	}
	s := stock{}
	for i, w := range weights {
		if w > 1e-9 {
			s.levels = append(s.levels, first+part*float64(i)/float64(len(weights)-1))
			s.weights = append(s.weights, w)
		}
	}
	return s.normalised()
}

// chain returns the stationary weights of u' = clip(u + drift + spread·z, 0,
// width) on a grid of so many cells. A step's mass is shared between grid points
// by linear interpolation, which keeps its mean; the variance that adds, a sixth
// of a cell squared, is taken off the spread.
func chain(cells int, width, drift, spread float64) (weights []float64, ok bool) {
	n := cells + 1
	step := width / float64(cells)
	spread = math.Sqrt(max(spread*spread-step*step/6, 0))
	// The balance equations Σ_i π_i P_ij = π_j, and Σ π = 1 for the last.
	rows := make([][]float64, n)
	for j := range rows {
		rows[j] = make([]float64, n+1)
	}
	slopes := make([]float64, n+1) // of E[(x−u')⁺] before each grid point
	slopes[n] = 1
	for i := range n {
		center := float64(i)*step + drift
		last := positivePart(-center, spread)
		for j := 1; j < n; j++ {
			next := positivePart(float64(j)*step-center, spread)
			slopes[j] = (next - last) / step
			last = next
		}
		for j := range n {
			rows[j][i] = slopes[j+1] - slopes[j]
		}
	}
	for j := range n {
		rows[j][j]--
		rows[n-1][j] = 1
	}
	rows[n-1][n] = 1
	return solve(rows)
}

// limitCells is how many levels stand for the continuous density.
const limitCells = 48

// limitStock takes equally likely levels of the continuous density.
func limitStock(queueFactor, rho, c, groups float64) stock {
	s := stock{}
	for i := range limitCells {
		p := (float64(i) + 0.5) / limitCells
		s.levels = append(s.levels, stockQuantile(p, queueFactor, rho, c, groups))
		s.weights = append(s.weights, 1)
	}
	return s.normalised()
}

// normalised makes the weights sum to one.
func (s stock) normalised() stock {
	total := 0.0
	for _, w := range s.weights {
		total += w
	}
	for i := range s.weights {
		s.weights[i] /= total
	}
	return s
}

// mean is the mean stock in batches.
func (s stock) mean() float64 {
	sum := 0.0
	for i, u := range s.levels {
		sum += u * s.weights[i]
	}
	return sum
}

// period returns T/t_step when the trainer waits for the groups that stock and
// one step's arrivals leave missing, at the speed of arrivals: for q = 1 it is
// [StarvedPeriod]. With the chain's own c arrivals less drops are what is
// consumed, ρT/t_step·(1 − dropped) = 1.
func (s stock) period(rho, c, groups float64) float64 {
	missing := 0.0
	for i, u := range s.levels {
		missing += s.weights[i] * positivePart(1-u-rho, c/math.Sqrt(groups))
	}
	return max(1+missing/rho, Period(rho))
}

// positivePart is E[(x + s·z)⁺] for a standard normal z.
func positivePart(x, s float64) float64 {
	if s < 1e-12 {
		return max(x, 0)
	}
	d := x / s
	return x*normalCDF(d) + s*math.Exp(-d*d/2)/math.Sqrt(2*math.Pi)
}

// solve solves the linear system rows (coefficients, then the right-hand side)
// by elimination with partial pivoting; ok is false if it is singular.
func solve(rows [][]float64) (x []float64, ok bool) {
	n := len(rows)
	for k := range n {
		pivot := k
		for i := k + 1; i < n; i++ {
			if math.Abs(rows[i][k]) > math.Abs(rows[pivot][k]) {
				pivot = i
			}
		}
		rows[k], rows[pivot] = rows[pivot], rows[k]
		if math.Abs(rows[k][k]) < 1e-300 {
			return nil, false
		}
		for i := k + 1; i < n; i++ {
			factor := rows[i][k] / rows[k][k]
			if factor == 0 {
				continue
			}
			for j := k; j <= n; j++ {
				rows[i][j] -= factor * rows[k][j]
			}
		}
	}
	x = make([]float64, n)
	for i := n - 1; i >= 0; i-- {
		sum := rows[i][n]
		for j := i + 1; j < n; j++ {
			sum -= rows[i][j] * x[j]
		}
		x[i] = sum / rows[i][i]
		if !(math.Abs(x[i]) <= 1+1e-6) {
			return nil, false
		}
	}
	return x, true
}
