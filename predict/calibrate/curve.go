package calibrate

import (
	"fmt"
	"strings"
)

// riseShare is how much faster a slot may be with more beside it before that is worth a note: less is
// the measurement's own doubt, and readers of a curve let it pass.
const riseShare = 0.02

// pooled are points in a row that get one speed, since a slot is not faster with more beside it.
type pooled struct {
	points []Point
	speed  float64
	values int
}

// pool makes the speeds of a slot fall with their number, or stay: neighbours that contradict each
// other get their mean, weighted by how often each was measured, which is the nearest curve that falls.
func pool(points []Point) []pooled {
	var out []pooled
	for _, p := range points {
		values := max(p.SlotTokensPerS.Values, 1)
		next := pooled{[]Point{p}, p.SlotTokensPerS.Value, values}
		for len(out) > 0 && next.speed > out[len(out)-1].speed {
			before := out[len(out)-1]
			out = out[:len(out)-1]
			n := before.values + next.values
			next = pooled{append(before.points, next.points...), (before.speed*float64(before.values) + next.speed*float64(next.values)) / float64(n), n}
		}
		out = append(out, next)
	}
	return out
}

// contradiction is a note on points that were pooled, empty where they hardly differ.
func (p pooled) contradiction() string {
	apart, rises := false, false
	low := p.points[0].SlotTokensPerS
	var said []string
	for i, at := range p.points {
		s := at.SlotTokensPerS
		said = append(said, fmt.Sprintf("%s with %d", number(s.Value), at.Slots))
		if i > 0 && s.Value > (1+riseShare)*low.Value {
			rises = true
			apart = apart || s.Low > low.High
		}
		if s.Value < low.Value {
			low = s
		}
	}
	if !rises {
		return ""
	}
	why := "what the rounds differ by explains it"
	if apart {
		why = "the rounds differ by less than that, so something else used the machine, or the engine, at one of them: measure again"
	}
	return fmt.Sprintf("a slot is not faster with more beside it, and was measured as %s slots; %s. The curve has %s for these", strings.Join(said, ", "), why, number(p.speed))
}

// contradictions notes where the curve differs from what was measured.
func (m *session) contradictions() {
	for _, p := range pool(m.result.Decode) {
		if text := p.contradiction(); text != "" {
			m.note("%s", text)
		}
	}
}
