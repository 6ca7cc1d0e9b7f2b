package workload

import (
	"fmt"
	"math"
)

// changeFactorMax bounds how much longer responses can grow over a run.
const changeFactorMax = 1000

// ChangeSpec is the `drift:` section of a config: it describes how a workload changes as the policy
// learns. The factors are 1 up to version Begin, go to their value at version Begin+Steps in a
// straight line, and stay. The zero ChangeSpec changes nothing.
type ChangeSpec struct {
	// Begin is the number of train steps before anything changes.
	Begin int `json:"begin,omitempty"`
	// Steps is the number of train steps until the factors are reached, at least 1
	// where one of them is not 1.
	Steps int `json:"steps,omitempty"`
	// LengthFactor multiplies lengths, ToolCallsFactor the mean number of tool calls,
	// EnvironmentFactor the environment's time and StepFactor that of a train step. All are above 0
	// and up to 1000; 0 means 1.
	LengthFactor      float64 `json:"length_factor,omitempty"`
	ToolCallsFactor   float64 `json:"tool_calls_factor,omitempty"`
	EnvironmentFactor float64 `json:"environment_factor,omitempty"`
	StepFactor        float64 `json:"step_factor,omitempty"`
}

// Change is a compiled ChangeSpec. The zero Change changes nothing.
type Change struct {
	begin, steps                     float64
	length, calls, environment, step float64 // less 1
	limit                            int
}

// Build compiles the specification; lengths are cut to capTokens, 0 for
// MaxTokens. It reports the first field that cannot be used, as a [*FieldError].
func (s ChangeSpec) Build(capTokens int) (Change, error) {
	c := Change{limit: capTokens}
	for _, f := range []struct {
		name  string
		value float64
		less1 *float64
	}{
		{"length_factor", s.LengthFactor, &c.length}, {"tool_calls_factor", s.ToolCallsFactor, &c.calls},
		{"environment_factor", s.EnvironmentFactor, &c.environment}, {"step_factor", s.StepFactor, &c.step},
	} {
		if !(f.value >= 0 && f.value <= changeFactorMax) {
			return Change{}, &FieldError{f.name, f.value, fmt.Sprintf("a factor above 0 and up to %d", changeFactorMax)}
		}
		if f.value != 0 {
			*f.less1 = f.value - 1
		}
	}
	if s.Steps < 0 || s.Steps == 0 && !c.Off() {
		return Change{}, &FieldError{"steps", s.Steps, "at least 1 train step in which the factors are reached"}
	}
	if s.Begin < 0 {
		return Change{}, &FieldError{"begin", s.Begin, "at least 0 train steps before anything changes"}
	}
	if c.limit <= 0 {
		c.limit = MaxTokens
	}
	c.begin, c.steps = float64(s.Begin), max(float64(s.Steps), 1)
	return c, nil
}

// Off reports whether nothing changes.
func (c Change) Off() bool {
	return c.length == 0 && c.calls == 0 && c.environment == 0 && c.step == 0
}

// Grows reports whether lengths change.
func (c Change) Grows() bool { return c.length != 0 }

// at is what a factor, given less 1, is at a version.
func (c Change) at(less1 float64, version int64) float64 {
	if less1 == 0 {
		return 1
	}
	progress := min(max(float64(version)-c.begin, 0)/c.steps, 1)
	return 1 + float64(less1*progress)
}

// LengthFactor returns what lengths are multiplied by at a version.
func (c Change) LengthFactor(version int64) float64 { return c.at(c.length, version) }

// CallsFactor returns what the mean number of tool calls is multiplied by.
func (c Change) CallsFactor(version int64) float64 { return c.at(c.calls, version) }

// StepFactor returns what the time of the train step from a version is multiplied by.
func (c Change) StepFactor(version int64) float64 { return c.at(c.step, version) }

// EnvironmentNS returns the environment's time at a version, in nanoseconds: rounded, and at most
// [MaxServiceS]. Lengths that the model had cut before are multiplied as well.
func (c Change) EnvironmentNS(ns, version int64) int64 {
	if c.environment == 0 {
		return ns
	}
	return int64(min(math.Round(float64(ns)*c.at(c.environment, version)), MaxServiceS*1e9))
}

// Length returns the length at a version: rounded, at least one token, at most the cap. Lengths
// that the cap had cut before are cut from the cap on.
func (c Change) Length(tokens int, version int64) int {
	if c.length == 0 {
		return tokens
	}
	return max(1, int(min(math.Round(float64(tokens)*c.LengthFactor(version)), float64(c.limit))))
}
