package replay

import "math"

// stepModel is the train step's time as a line through the recorded ones. Each
// recorded step's distance from the line is kept, in order, so that drift is.
type stepModel struct {
	fixedNS, perTokenNS float64
	ratios              []float64 // recorded over modelled
}

// fitSteps fits ns = fixed + perToken·tokens, neither negative. The slope is the
// least-squares one of the changes from step to step: over a whole run both time
// and tokens drift for reasons of their own, and a slope through the levels would
// take the one for the effect of the other. Where tokens explain nothing the time
// is fixed; where there is no fixed part, it is proportional.
func fitSteps(steps []recordedStep) stepModel {
	n := float64(len(steps))
	var tokens, ns, xx, xy float64
	for i, s := range steps {
		tokens += float64(s.tokens) / n
		ns += float64(s.ns) / n
		if i > 0 {
			d := float64(s.tokens - steps[i-1].tokens)
			xx += d * d
			xy += d * float64(s.ns-steps[i-1].ns)
		}
	}
	var m stepModel
	if xx > 0 && xy > 0 {
		m.perTokenNS = min(xy/xx, ns/tokens)
	}
	m.fixedNS = ns - m.perTokenNS*tokens
	for _, s := range steps {
		m.ratios = append(m.ratios, float64(s.ns)/m.line(s.tokens))
	}
	return m
}

func (m *stepModel) line(tokens int64) float64 {
	return math.Max(m.fixedNS+m.perTokenNS*float64(tokens), 1)
}

// ns returns the time of step i (from 0) on so many tokens. extrapolated says
// that step i was not recorded; the last quarter of those that were stands in.
func (m *stepModel) ns(i int, tokens int64) (ns int64, extrapolated bool) {
	n := len(m.ratios)
	if i >= n {
		quarter := (n + 3) / 4
		i, extrapolated = n-quarter+(i-n)%quarter, true
	}
	return int64(math.Round(m.line(tokens) * m.ratios[i])), extrapolated
}
