package reproduce

import (
	"encoding/json"
	"math"

	"github.com/headway-rl/headway/predict/theory"
)

// Result is everything headway reproduce prints.
type Result struct {
	// Quick says that simulations were too short for their figures to be results.
	Quick bool `json:"quick"`
	// Cases in the order in which they are printed.
	Cases []Case `json:"cases"`
	// Figures are pictures of the theory, drawn without a published row of their own.
	Figures []Figure `json:"figures"`
}

// Case is one published table or study beside ours.
type Case struct {
	// Name as the command line has it, such as validation_runs; Title for people.
	Name  string `json:"name"`
	Title string `json:"title"`
	// Source is who published it, under which title and when.
	Source string `json:"source"`
	// Setup lists, a sentence each, the published figures that go in, and the
	// inputs that had to be assumed because they were not published. It also names
	// the figures that are therefore comparisons and not inputs.
	Setup []string `json:"setup"`
	// Quantities are the comparisons, in the order of the published rows.
	Quantities []Quantity `json:"quantities"`
	// Checks redo the arithmetic of the printed figures.
	Checks []Check `json:"checks,omitempty"`
	// Grids are further tables, such as scans over what had to be assumed.
	Grids []Grid `json:"grids,omitempty"`
	// Findings say, a sentence each, what the comparison shows.
	Findings []string `json:"findings"`
	// Figures are pictures of this case.
	Figures []Figure `json:"figures,omitempty"`
}

// Quantity is one figure of one published row: the printed figure beside ours.
// Unknown figures are null in JSON and a dash in tables.
type Quantity struct {
	// Row names the published row by its inputs, such as "C 120, B 240, q 2, ρ 0.63".
	Row string `json:"row"`
	// Name of the figure, with its unit last, such as staleness or step_s.
	Name string `json:"name"`
	// Printed is the source's prediction, Measured what the source's run or simulator gave.
	Printed  theory.Figure `json:"published_prediction"`
	Measured theory.Figure `json:"published_measurement"`
	// Closed is our published-form prediction, Corrected that with our corrections.
	Closed    theory.Figure `json:"closed_form"`
	Corrected theory.Figure `json:"corrected"`
	// Simulated is ours through the production loop.
	Simulated Interval `json:"simulated"`
	// Missing names the inputs without which a figure is not computable, "" for none.
	Missing string `json:"missing,omitempty"`
	// Basis says why being near to the measurement is no evidence, such as
	// [AssumedToMatch]; "" where it is. No error of such a figure is summed up.
	Basis string `json:"basis,omitempty"`
	// Note explains, such as an assumption this row rests on; "" for nothing.
	Note string `json:"note,omitempty"`
	// Decimals to print it with; 0 means 2, whole none.
	Decimals int `json:"-"`
}

// Why a figure near to a measurement shows nothing.
const (
	// AssumedToMatch: an input that was not published was assumed for bringing the
	// figure near to the measurement.
	AssumedToMatch = "assumed to match"
	// FollowsFromInputs: published figures that go in determine it.
	FollowsFromInputs = "follows from inputs"
	// FollowsFromAssumed: inputs that were not published determine it, and could have
	// been assumed otherwise.
	FollowsFromAssumed = "follows from what was assumed"
)

// whole is a quantity's Decimals for figures that are counts.
const whole = -1

// Best is the figure of ours that residuals are taken of. It is the simulated one,
// else the corrected, else the closed form; unknown where there is none.
func (q Quantity) Best() theory.Figure {
	if q.Simulated.Known() {
		return theory.Known(q.Simulated.Mean)
	}
	if _, ok := q.Corrected.Value(); ok {
		return q.Corrected
	}
	return q.Closed
}

// Residual is ours less the published measurement, absolute and relative to the
// measurement; unknown where either is.
func (q Quantity) Residual() (absolute, relative theory.Figure) {
	return residual(q.Best(), q.Measured)
}

// PrintedResidual is the closed form less the published prediction: the part that
// the printed prediction's own inputs do not explain.
func (q Quantity) PrintedResidual() (absolute, relative theory.Figure) {
	return residual(q.Closed, q.Printed)
}

func residual(ours, published theory.Figure) (absolute, relative theory.Figure) {
	a, ok := ours.Value()
	b, known := published.Value()
	if !ok || !known {
		return theory.Figure{}, theory.Figure{}
	}
	absolute = theory.Known(a - b)
	if b != 0 {
		relative = theory.Known((a - b) / math.Abs(b))
	}
	return absolute, relative
}

// MarshalJSON writes the quantity with its residuals.
func (q Quantity) MarshalJSON() ([]byte, error) {
	type plain Quantity
	absolute, relative := q.Residual()
	printed, printedRelative := q.PrintedResidual()
	return json.Marshal(struct {
		plain
		Residual        theory.Figure `json:"residual"`
		Relative        theory.Figure `json:"residual_relative"`
		Printed         theory.Figure `json:"closed_form_less_published_prediction"`
		PrintedRelative theory.Figure `json:"closed_form_less_published_prediction_relative"`
	}{plain(q), absolute, relative, printed, printedRelative})
}

// Interval is a mean over simulations with its 95 % interval.
type Interval struct {
	// Mean, and the ends of Student's interval over the seeds; the ends are not
	// numbers for one seed, whose mean is no result.
	Mean, Low, High float64
	// Seeds is how many simulations there were; 0 is an unknown figure.
	Seeds int
}

// Known reports whether there is a figure.
func (i Interval) Known() bool { return i.Seeds > 0 && !math.IsNaN(i.Mean) && !math.IsInf(i.Mean, 0) }

// MarshalJSON writes null for an unknown figure.
func (i Interval) MarshalJSON() ([]byte, error) {
	if !i.Known() {
		return []byte("null"), nil
	}
	type plain struct {
		Mean       float64     `json:"mean"`
		Interval95 *[2]float64 `json:"interval_95"`
		Seeds      int         `json:"seeds"`
	}
	out := plain{Mean: i.Mean, Seeds: i.Seeds}
	if !math.IsNaN(i.Low) && !math.IsNaN(i.High) {
		out.Interval95 = &[2]float64{i.Low, i.High}
	}
	return json.Marshal(out)
}

// Check is the arithmetic of one printed figure done again from other printed
// figures. Where Redone and Printed differ by more than rounding, the printed
// figure was made from inputs other than the printed ones.
type Check struct {
	// Row and Name are as in Quantity; How says from what it was done again.
	Row  string `json:"row"`
	Name string `json:"name"`
	How  string `json:"how"`
	// Printed by the source, Redone by us.
	Printed float64 `json:"printed"`
	Redone  float64 `json:"redone"`
	// Rounding is the largest difference that the printed digits allow.
	Rounding float64 `json:"rounding"`
}

// Agrees reports whether rounding explains the difference.
func (c Check) Agrees() bool { return math.Abs(c.Printed-c.Redone) <= c.Rounding+1e-9 }

// MarshalJSON writes the check with its verdict.
func (c Check) MarshalJSON() ([]byte, error) {
	type plain Check
	return json.Marshal(struct {
		plain
		Difference float64 `json:"difference"`
		Agrees     bool    `json:"agrees"`
	}{plain(c), c.Redone - c.Printed, c.Agrees()})
}

// Grid is a table of text.
type Grid struct {
	// Title names the varied setting and the figure seen.
	Title  string     `json:"title"`
	Header []string   `json:"header"`
	Rows   [][]string `json:"rows"`
}

// Figure is one picture with its data.
type Figure struct {
	// Name is short, of letters, digits and dashes; Title says what is seen.
	Name  string `json:"name"`
	Title string `json:"title"`
	// Caption names the settings that are held fixed and the effect to look for.
	Caption string `json:"caption"`
	// XLabel and YLabel name the axes with their units.
	XLabel string `json:"x_label"`
	YLabel string `json:"y_label"`
	// XRange and YRange fix the axes where they are not empty; else they fit.
	XRange [2]float64 `json:"-"`
	YRange [2]float64 `json:"-"`
	// Bars draws bars over whole numbers from 0, one a value of Y, instead of lines.
	Bars bool `json:"bars,omitempty"`
	// Curves are drawn in order, at most eight.
	Curves []Curve `json:"curves"`
}

// Curve is one line or one set of points.
type Curve struct {
	Name string `json:"name"`
	// Points draws marks, with their intervals where Low and High are given. They
	// have the colour of the line before it if that has the same Name.
	Points bool      `json:"points"`
	X      []float64 `json:"x"`
	Y      []float64 `json:"y"`
	// Low and High are the ends of the points' intervals.
	Low  []float64 `json:"low,omitempty"`
	High []float64 `json:"high,omitempty"`
}
