package study

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/headway-rl/headway/loop"
)

// ControlGoal is what is to be kept over a window of train steps: a mean staleness, or a share within some versions.
type ControlGoal struct {
	// Mean is the largest mean staleness, 0 for none.
	Mean float64 `json:"mean,omitempty"`
	// Share is the least share of rollouts, or with Tokens of tokens, at most Within versions stale; 0 for none.
	Share  float64 `json:"share,omitempty"`
	Within int     `json:"within,omitempty"`
	Tokens bool    `json:"tokens,omitempty"`
}

// controlWindow is the number of train steps over which a goal is meant.
const controlWindow = 32

// ParseControlGoal reads a goal: a number is the largest mean staleness; rollouts:SHARE:VERSIONS and
// tokens:SHARE:VERSIONS are the least share within so many versions.
func ParseControlGoal(text string) (ControlGoal, error) {
	refused := func() (ControlGoal, error) {
		return ControlGoal{}, fmt.Errorf("%q is no goal: want a mean staleness above 0 such as 2, or a share within some versions such as tokens:0.95:4 or rollouts:0.95:4", text)
	}
	if mean, err := strconv.ParseFloat(text, 64); err == nil {
		if !(mean > 0 && mean <= 1000) {
			return refused()
		}
		return ControlGoal{Mean: mean}, nil
	}
	parts := strings.Split(text, ":")
	if len(parts) != 3 || parts[0] != "rollouts" && parts[0] != "tokens" {
		return refused()
	}
	share, err := strconv.ParseFloat(parts[1], 64)
	within, err2 := strconv.Atoi(parts[2])
	if err != nil || err2 != nil || !(share > 0 && share < 1) || within < 0 || within >= tokenLags-1 {
		return refused()
	}
	return ControlGoal{Share: share, Within: within, Tokens: parts[0] == "tokens"}, nil
}

// String writes the goal as a sentence has it.
func (g ControlGoal) String() string {
	what := "rollouts"
	if g.Tokens {
		what = "tokens"
	}
	if g.Share > 0 {
		return fmt.Sprintf("%g %% of %s within %d", 100*g.Share, what, g.Within)
	}
	return fmt.Sprintf("mean ≤ %g", g.Mean)
}

// control is the goal for the loop's own controller.
func (g ControlGoal) control() *loop.Control {
	c := controlRanges()
	c.Mean, c.Share, c.Within, c.Tokens, c.Window = g.Mean, g.Share, loop.Version(g.Within), g.Tokens, controlWindow
	return &c
}

// eta is AReaL's η for the goal as its users set it: the goal's mean, or its number of versions.
func (g ControlGoal) eta() float64 {
	if g.Share > 0 {
		return float64(g.Within)
	}
	return g.Mean
}

// start are settings near those that the controller starts from: everything open but live groups, which with
// nothing dropped make the goal's mean, or half of a share's versions and the current one.
func (g ControlGoal) start() settings {
	s := full()
	versions := g.Mean
	if g.Share > 0 {
		versions = float64(g.Within+1) / 2
	}
	s[loop.SettingLive] = rounded(loop.SettingLive, min(versions*controlGroups, controlLive))
	return s
}

// holds reports whether a measured value, of value's kind, keeps the goal.
func (g ControlGoal) holds(value float64) bool {
	if g.Share > 0 {
		return value >= g.Share
	}
	return value <= g.Mean
}

// counts are a step's part of the goal's value: what is added up, over how much.
func (g ControlGoal) counts(s *controlSeries, step int) (sum, of float64) {
	if g.Share > 0 && g.Tokens {
		for lag, n := range s.tokens[step] {
			if of += float64(n); lag <= g.Within {
				sum += float64(n)
			}
		}
		return sum, of
	}
	for _, lag := range s.lags[step*controlGroups : (step+1)*controlGroups] {
		switch {
		case g.Share == 0:
			sum += float64(lag)
		case int(lag) <= g.Within:
			sum++
		}
	}
	return sum, controlGroups
}

// values are the goal's measured value by step: of the step's own batch, and over the window that ends with it.
func (g ControlGoal) values(s *controlSeries) (own, window []float64) {
	n := len(s.endNS)
	own, window = make([]float64, n), make([]float64, n)
	sums, ofs := make([]float64, n+1), make([]float64, n+1)
	for i := range n {
		sum, of := g.counts(s, i)
		own[i] = sum / of
		sums[i+1], ofs[i+1] = sums[i]+sum, ofs[i]+of
		from := max(i+1-controlWindow, 0)
		window[i] = (sums[i+1] - sums[from]) / (ofs[i+1] - ofs[from])
	}
	return own, window
}
