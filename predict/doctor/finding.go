package doctor

import (
	"bytes"
	"encoding/json"
	"math"
)

// Severity says how much a finding matters.
type Severity string

// Severities, the gravest first.
const (
	// Error: the run would stand still, or train on almost nothing of what it generates.
	Error Severity = "error"
	// Warning: the run works and does not do what the config asks for, or pays more than it needs to.
	Warning Severity = "warning"
	// Info: worth knowing before the run; nothing has to change.
	Info Severity = "info"
)

// rank orders severities, the gravest first.
func (s Severity) rank() int {
	switch s {
	case Error:
		return 0
	case Warning:
		return 1
	}
	return 2
}

// Basis is how a finding is known.
type Basis string

// Bases.
const (
	// Arithmetic follows from the loop's rules, for any workload.
	Arithmetic Basis = "arithmetic"
	// ClosedForm is theory's, on the modelled workload.
	ClosedForm Basis = "closed form"
	// Simulated is a short simulation of the modelled workload by the production loop.
	Simulated Basis = "simulation"
	// File is the content of the model's directory, or that it cannot be read.
	File Basis = "file"
	// Asked is the word or the seen behaviour of a part: an engine's server, or the parts that
	// rollouts are played with.
	Asked Basis = "asked"
)

// Figure is a number behind a finding.
type Figure struct {
	// Name says what is counted, units last.
	Name string
	// Value is finite.
	Value float64
}

// Figures are the numbers behind a finding, in the order in which a reader wants them.
type Figures []Figure

// MarshalJSON writes one object, its keys in the order of the figures. A number
// is rounded to six digits, beyond which no prediction goes.
func (f Figures) MarshalJSON() ([]byte, error) {
	var text bytes.Buffer
	text.WriteByte('{')
	for i, figure := range f {
		if i > 0 {
			text.WriteByte(',')
		}
		name, err := json.Marshal(figure.Name)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(rounded(figure.Value))
		if err != nil {
			return nil, err
		}
		text.Write(name)
		text.WriteByte(':')
		text.Write(value)
	}
	text.WriteByte('}')
	return text.Bytes(), nil
}

// rounded keeps six digits.
func rounded(x float64) float64 {
	if x == 0 || math.Trunc(x) == x {
		return x
	}
	unit := math.Pow(10, math.Ceil(math.Log10(math.Abs(x)))-6)
	if unit < 1 {
		return math.Round(x*math.Round(1/unit)) / math.Round(1/unit)
	}
	return math.Round(x/unit) * unit
}

// Value returns the figure of a name, and whether there is one.
func (f Figures) Value(name string) (value float64, ok bool) {
	for _, figure := range f {
		if figure.Name == name {
			return figure.Value, true
		}
	}
	return 0, false
}

// Finding is one thing a config's owner should know.
type Finding struct {
	// Severity says how much it matters.
	Severity Severity `json:"severity"`
	// Code names the kind of finding; docs/reference/doctor.md lists all of them.
	Code string `json:"code"`
	// Key is the dotted key it is about, such as queue.max_staleness.
	Key string `json:"key"`
	// File and Line are where the document or an override gave the key, or the
	// section around it. They are empty and 0 where it came by default.
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
	// Scenarios are the public issues that the finding is known by ([Scenarios]).
	Scenarios []string `json:"scenarios,omitempty"`
	// The finding, in a sentence.
	What string `json:"what"`
	// Why it is so.
	Why string `json:"why"`
	// Do says what to change; empty where nothing has to.
	Do string `json:"do,omitempty"`
	// Basis is how it is known, Groups how many groups the simulation ended if it is by simulation.
	Basis  Basis `json:"basis"`
	Groups int64 `json:"simulated_groups,omitempty"`
	// Figures are the numbers behind it.
	Figures Figures `json:"figures"`
}

// Kind describes a code: what docs/reference/doctor.md prints of it.
type Kind struct {
	// Code is the finding's.
	Code string
	// Severities it can have.
	Severities []Severity
	// Keys it can be about.
	Keys []string
	// When it is found.
	When string
	// Known is how: the argument, formula or simulation behind it.
	Known string
}
