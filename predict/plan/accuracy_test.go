package plan

import "testing"

// Where a rule has both sides wait, the plan says so, whatever the speeds of the sides.
func TestRegimeOfASetting(t *testing.T) {
	for _, test := range []struct {
		rho     float64
		binding string
		want    string
	}{
		{0.5, "", "rollout-bound (ρ 0.50)"}, {0.5, "rollout", "rollout-bound (ρ 0.50)"}, {1.5, "train", "train-bound (ρ 1.50)"}, {1.05, "train", "near balance (ρ 1.05)"},
		{0.5, "admission", "bound by admission (ρ 0.50)"}, {1, "admission", "bound by admission (ρ 1.00)"},
	} {
		c := Candidate{Predicted: &Figures{Utilization: test.rho}}
		if test.binding != "" {
			c.Simulated = &Simulated{Figures: Figures{Utilization: test.rho}, Binding: test.binding}
		}
		if got := c.regime(); got != test.want {
			t.Errorf("ρ %g, %q binds: %q, want %q", test.rho, test.binding, got, test.want)
		}
	}
}
