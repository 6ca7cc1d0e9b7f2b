package theory

// remainingStride is how many cells of the grid one step of a remaining time's
// table spans: its integrand is smooth, and a double sum pays for every point.
const remainingStride = 8

// remainingStarts is over how many of the siblings' starts it averages.
const remainingStarts = 4

// remaining tabulates the distribution of R, a token's time from its sampling to
// its group's last sibling, over all tokens alike. A token at u of sibling i, which
// starts at sᵢ, needs that sibling to end by u + x and the others by sᵢ + u + x:
//
//	P(R ≤ x) = (1/S·E[L]) Σᵢ ∫ (F(u+x) − F(u)) ∏_{j≠i} F(sᵢ + u + x − sⱼ) du
//
// whose mean without stagger is M_tok − K₂/2. It is made when first asked for.
func (s *shape) remaining(i int) *groupTimes {
	s.tokenOnce[i].Do(func() { s.tokens[i] = s.remainingAfter(float64(i)/(staggers-1), s.at(i)) })
	return s.tokens[i]
}

// remainingAfter is the table for a stagger and its group times.
func (s *shape) remainingAfter(stagger float64, group *groupTimes) *groupTimes {
	t := &groupTimes{grid: s.grid, area: make([]float64, gridPoints)}
	all := s.ended(s.grid.last, stagger, group) // E[L], with the grid's own rounding
	last, lastPoint := 0.0, 0.0
	for i := remainingStride; i < gridPoints; i += remainingStride {
		x := s.grid.point(i)
		f := 1.0 // lengths are so unequal that all but the longest end within the grid's first step
		if all > 0 {
			f = min(s.ended(x, stagger, group)/all, 1)
		}
		slope := (f - last) / (x - lastPoint)
		for k := i - remainingStride + 1; k <= i; k++ {
			far := s.grid.point(k) - lastPoint
			t.area[k] = t.area[i-remainingStride] + far*(last+slope*far/2)
		}
		last, lastPoint = f, x
	}
	t.mean = s.grid.last - t.area[gridPoints-1]
	return t
}

// ended is the integral over u, of the mean sibling.
func (s *shape) ended(x, stagger float64, group *groupTimes) float64 {
	starts := remainingStarts
	if stagger == 0 || s.size == 1 {
		starts = 1
	}
	sum, last, lastPoint := 0.0, 0.0, 0.0
	for i := 0; i < gridPoints && s.single[i] < 1; i += remainingStride {
		u, value := s.grid.point(i), 0.0
		if f := s.grid.value(s.single, u+x); f > s.single[i] {
			for b := range starts {
				start := stagger * (float64(b) + 0.5) / float64(starts)
				if starts == 1 {
					start = 0
				}
				value += min(s.grid.value(group.share, u+x+start)/f, 1)
			}
			value *= (f - s.single[i]) / float64(starts)
		}
		sum += (value + last) / 2 * (u - lastPoint)
		last, lastPoint = value, u
	}
	return sum
}

// tokensOf is the law of R for a stagger, whose mean without stagger is
// given: siblings that are not independent differ from the table by it.
func (s *shape) tokensOf(stagger, mean float64) spread {
	law := s.pick(stagger, s.remaining)
	law.later += mean - s.remaining(0).mean
	return law
}

// tokenMean is E⌊(R + W + t_step + t_publish)/T⌋ over tokens, each of them younger
// than its group by its own start and place.
func (d *Distribution) tokenMean(tokens spread) float64 {
	d.law, d.noise = tokens, 0
	lag := float64(d.every-1) / 2
	if d.most() > sweepVersions {
		return d.halfBelow() + lag
	}
	mean := 0.0
	for k := range sweepVersions {
		above := 1 - d.cdf(k)
		if above < 1e-7 {
			break
		}
		mean += above
	}
	return mean + lag
}
