package plan

import (
	"testing"

	"github.com/headway-rl/headway/config"
)

// A round of polishing that came nearer to the budget gained, though what keeps it be slower.
func TestPolishingGainsByTheBudget(t *testing.T) {
	p := Problem{Document: config.Config{Budget: config.Budget{StalenessMean: 1}}}
	at := func(staleness, updateS float64) *Figures { return &Figures{StalenessMean: staleness, UpdateS: updateS} }
	for _, c := range []struct {
		name          string
		before, after *Figures
		want          bool
	}{
		{"into the budget, slower", at(1.2, 10), at(1, 12), true},
		{"nearer to it, slower", at(1.5, 10), at(1.2, 12), true},
		{"out of it, faster", at(1, 10), at(1.2, 8), false},
		{"within it, faster", at(0.9, 10), at(1, 9), true},
		{"within it, as fast", at(0.9, 10), at(0.8, 9.99), false},
		{"nothing new", at(1.2, 10), at(1.2, 10), false},
	} {
		if got := p.gains(c.after, c.before); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// What a closed form covers has been ranked whole: it neither begins a round of polishing nor ends one.
func TestPolishingPassesOverClosedForms(t *testing.T) {
	p := Problem{Document: config.Config{Budget: config.Budget{StalenessMean: 1}}}
	rules := []Candidate{
		{Predicted: &Figures{}, Simulated: &Simulated{Figures: Figures{UpdateS: 20}}}, // synchronous
		{Simulated: &Simulated{Figures: Figures{StalenessMean: 1.3, UpdateS: 9}}},
		{Simulated: &Simulated{Figures: Figures{StalenessMean: 1.1, UpdateS: 10}}},
	}
	if order := p.polished(rules); len(order) != 2 || order[0] != 2 {
		t.Errorf("order %v, want the asynchronous rules, the nearer one first", order)
	}
}
