// Package outcome is the answer of a world's program: one line of JSON about one plan that it ran.
package outcome

import (
	"fmt"
	"maps"
	"slices"

	"github.com/headway-rl/headway/cmd/lab/world/plan"
)

// Exit codes of the world's program. Every other code, and a panic, is a failure as well.
const (
	Clean   = 0 // the run was checked, and nothing is wrong
	Broken  = 1 // rules are broken, or the run was stuck after everything was healed
	Harness = 2 // the harness itself failed, so that nothing is known of the run
)

// Outcome is what happened in one world.
type Outcome struct {
	// Seed is that of the plan, and Plan everything that the seed drew.
	Seed uint64    `json:"seed"`
	Plan plan.Plan `json:"plan"`
	// Steps counts the train steps that the run made.
	Steps int `json:"steps"`
	// Events counts the lines of the history that was checked.
	Events int64 `json:"events"`
	// Faults counts the faults that struck, by their kinds. A fault that came after the run's end is not in it.
	Faults map[string]int64 `json:"faults"`
	// Pairs counts the faults by the state that they struck, as STATE/FAULT. A count of 0 declares a pair.
	Pairs map[string]int64 `json:"pairs,omitempty"`
	// Marks counts the places that the run came through.
	Marks map[string]int64 `json:"marks,omitempty"`
	// Violations are the rules that the run broke, the first one first.
	Violations []Violation `json:"violations,omitempty"`
	// Stuck says why the run did not go on after everything was healed; "" if it went on.
	Stuck string `json:"stuck,omitempty"`
	// Mix is a hash of the order of everything and of all bytes that were put out: hexadecimal digits.
	Mix string `json:"mix"`
	// WorldS is the time that passed in the world, in seconds.
	WorldS float64 `json:"world_s"`
	// AllocMB is how much memory the process asked for in all, in MiB.
	AllocMB float64 `json:"alloc_mb"`
	// Trace is the path of the run's trace in the world's folder; "" if the program names none.
	Trace string `json:"trace,omitempty"`
}

// Violation is a rule that a run broke.
type Violation struct {
	Rule string `json:"rule"`
	Text string `json:"text"`
}

// Struck counts the faults of all kinds, and the kinds.
func (o Outcome) Struck() (faults int64, kinds int) {
	for _, n := range o.Faults {
		faults += n
		if n > 0 {
			kinds++
		}
	}
	return faults, kinds
}

// Short says what a run lacks in order to count; "" if it counts.
func (o Outcome) Short() string {
	faults, kinds := o.Struck()
	switch {
	case o.Steps < plan.StepsCounted:
		return fmt.Sprintf("fewer than %d steps", plan.StepsCounted)
	case faults < plan.FaultsCounted:
		return fmt.Sprintf("fewer than %d faults", plan.FaultsCounted)
	case kinds < plan.KindsCounted:
		return fmt.Sprintf("fewer than %d kinds of faults", plan.KindsCounted)
	}
	return ""
}

// Differs names the first thing in which two runs of one plan differ; "" if they are the same. Only the memory that
// the processes asked for may differ.
func (o Outcome) Differs(other Outcome) string {
	for _, pair := range []struct {
		name string
		same bool
	}{
		{"steps", o.Steps == other.Steps},
		{"events", o.Events == other.Events},
		{"faults", maps.Equal(o.Faults, other.Faults)},
		{"pairs", maps.Equal(o.Pairs, other.Pairs)},
		{"marks", maps.Equal(o.Marks, other.Marks)},
		{"violations", slices.Equal(o.Violations, other.Violations)},
		{"stuck", o.Stuck == other.Stuck},
		{"world_s", o.WorldS == other.WorldS},
		{"mix", o.Mix == other.Mix},
	} {
		if !pair.same {
			return pair.name
		}
	}
	return ""
}
