package replay

import "math"

// stepModel is the train step's time as a line through the recorded ones. Each
// recorded step's distance from the line is kept, in order, so that drift is.
type stepModel struct {
	fixedNS, perTokenNS float64
	ratios              []float64 // recorded over modelled
}

// fitSteps fits ns = fixed + perToken·tokens by least squares, neither negative.
// Where that says that tokens explain nothing, the time is fixed; where there is
// no fixed part, it is proportional.
func fitSteps(steps []recordedStep) stepModel {
	n := float64(len(steps))
	var x, y, xx, xy float64
	for _, s := range steps {
		x += float64(s.tokens) / n
		y += float64(s.ns) / n
	}
	for _, s := range steps {
		d := float64(s.tokens) - x
		xx += d * d
		xy += d * (float64(s.ns) - y)
	}
	var m stepModel
	if xx > 0 && xy > 0 {
		m.perTokenNS = xy / xx
	}
	m.fixedNS = y - m.perTokenNS*x
	if m.fixedNS < 0 {
		m.fixedNS = 0
		var tt, tn float64
		for _, s := range steps {
			tt += float64(s.tokens) * float64(s.tokens)
			tn += float64(s.tokens) * float64(s.ns)
		}
		m.perTokenNS = tn / tt
	}
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
