package workload

import (
	"fmt"
	"math"
)

// changeFactorMax bounds how much longer responses can grow over a run.
const changeFactorMax = 1000

// ChangeSpec is the `drift:` section of a config: what the policy does to its
// responses as it learns. The factors go from 1 at version 0 to their value at
// version Steps, in a straight line, and stay. The zero ChangeSpec changes nothing.
type ChangeSpec struct {
	// Steps is the number of train steps until the factors are reached, at least 1
	// where one of them is not 1.
	Steps int `json:"steps,omitempty"`
	// LengthFactor multiplies lengths, ToolCallsFactor the mean number of tool
	// calls, both above 0 and up to 1000; 0 means 1.
	LengthFactor    float64 `json:"length_factor,omitempty"`
	ToolCallsFactor float64 `json:"tool_calls_factor,omitempty"`
}

// Change is a compiled ChangeSpec. The zero Change changes nothing.
type Change struct {
	steps         float64
	length, calls float64 // less 1
	limit         int
}

// Build compiles the specification; lengths are cut to capTokens, 0 for
// MaxTokens. It reports the first field that cannot be used, as a [*FieldError].
func (s ChangeSpec) Build(capTokens int) (Change, error) {
	for _, f := range []struct {
		name  string
		value float64
	}{{"length_factor", s.LengthFactor}, {"tool_calls_factor", s.ToolCallsFactor}} {
		if !(f.value >= 0 && f.value <= changeFactorMax) {
			return Change{}, &FieldError{f.name, f.value, fmt.Sprintf("a factor above 0 and up to %d", changeFactorMax)}
		}
	}
	c := Change{limit: capTokens}
	if s.LengthFactor != 0 {
		c.length = s.LengthFactor - 1
	}
	if s.ToolCallsFactor != 0 {
		c.calls = s.ToolCallsFactor - 1
	}
	if s.Steps < 0 || s.Steps == 0 && !c.Off() {
		return Change{}, &FieldError{"steps", s.Steps, "at least 1 train step in which the factors are reached"}
	}
	if c.limit <= 0 {
		c.limit = MaxTokens
	}
	c.steps = max(float64(s.Steps), 1)
	return c, nil
}

// Off reports whether nothing changes.
func (c Change) Off() bool { return c.length == 0 && c.calls == 0 }

// progress is how much of the change has happened at a version, 0 to 1.
func (c Change) progress(version int64) float64 {
	return min(max(float64(version), 0)/c.steps, 1)
}

// LengthFactor returns what lengths are multiplied by at a version.
func (c Change) LengthFactor(version int64) float64 {
	if c.length == 0 {
		return 1
	}
	return 1 + c.length*c.progress(version)
}

// CallsFactor returns what the mean number of tool calls is multiplied by.
func (c Change) CallsFactor(version int64) float64 {
	if c.calls == 0 {
		return 1
	}
	return 1 + c.calls*c.progress(version)
}

// Length returns the length at a version: rounded, at least one token, at most
// the cap. What the cap had cut before is cut from the cap on.
func (c Change) Length(tokens int, version int64) int {
	if c.length == 0 {
		return tokens
	}
	return max(1, int(min(math.Round(float64(tokens)*c.LengthFactor(version)), float64(c.limit))))
}
