package serving

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// figure is one kind of measurement, and how far a prediction of it may be off: the standard deviation of its logarithm
// over the rows of docs/reference/serving.md.
type figure struct {
	column, name string
	spread       float64
	of           func(Answer) *float64
}

// figures are those that a row may have measured.
var figures = []figure{
	{"m_ttft_ms", "first token, ms", 0.45, func(a Answer) *float64 { return a.TTFTMS }},
	{"m_tpot_ms", "each token, ms", 0.12, func(a Answer) *float64 { return a.TPOTMS }},
	{"m_output_tokens_per_s", "output tokens/s", 0.12, func(a Answer) *float64 { return a.OutputTokensPerS }},
	{"m_requests_per_s", "requests/s", 0.08, func(a Answer) *float64 { return a.RequestsPerS }},
	{"m_latency_s", "latency, s", 0.15, func(a Answer) *float64 { return a.LatencyS }},
	{"m_gen_s", "generation, s", 0.25, func(a Answer) *float64 { return a.SpanS }},
	{"m_prefix_hit", "prompt found", 0.1, func(a Answer) *float64 { return a.PrefixHit }},
}

// Compared is one predicted figure of a row beside its measurement.
type Compared struct {
	ID        string  `json:"id"`
	Figure    string  `json:"figure"`
	Measured  float64 `json:"measured"`
	Predicted float64 `json:"predicted"`
	// Low and High are the ends of the prediction's 80 % interval.
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// normal80 is the quantile of a normal distribution between whose two 80 % lies.
const normal80 = 1.2816

// Error is predicted over measured, less 1.
func (c Compared) Error() float64 { return c.Predicted/c.Measured - 1 }

// Summary is how far a kind of figure is off.
type Summary struct {
	Figure string `json:"figure"`
	N      int    `json:"n"`
	// Median and Worst are of the errors without their sign.
	Median float64 `json:"median_error"`
	Worst  float64 `json:"worst_error"`
	// Covered is the share of measurements inside their intervals.
	Covered float64 `json:"covered"`
}

// Result is a table of serving measurements answered.
type Result struct {
	Rows    []Answer   `json:"rows"`
	Figures []Summary  `json:"figures"`
	Errors  []Compared `json:"errors"`
}

// Table answers every row and compares what it has measured.
func Table(rows []map[string]string) Result {
	return Compare(rows, Answers(rows))
}

// Compare sets answers beside what rows have measured.
func Compare(rows []map[string]string, answers []Answer) Result {
	r := Result{Rows: answers}
	off, covered := map[string][]float64{}, map[string]int{}
	for i, a := range answers {
		for _, f := range figures {
			measured, err := strconv.ParseFloat(rows[i][f.column], 64)
			if got := f.of(a); err == nil && got != nil && measured > 0 && a.Reason == "" {
				wide := math.Exp(normal80 * f.spread)
				c := Compared{a.ID, f.name, measured, *got, *got / wide, *got * wide}
				if c.Low <= measured && measured <= c.High {
					covered[f.name]++
				}
				r.Errors, off[f.name] = append(r.Errors, c), append(off[f.name], math.Abs(c.Error()))
			}
		}
	}
	for _, f := range figures {
		if all := off[f.name]; len(all) > 0 {
			slices.Sort(all)
			r.Figures = append(r.Figures, Summary{f.name, len(all), (all[(len(all)-1)/2] + all[len(all)/2]) / 2, all[len(all)-1], float64(covered[f.name]) / float64(len(all))})
		}
	}
	return r
}

// Tables are the result as rows of text: errors by figure, every figure, and rows without an answer. The
// first row of each names its columns.
func (r Result) Tables() (byFigure, every, refused [][]string) {
	byFigure = [][]string{{"figure", "rows", "median error", "worst", "in 80 %"}}
	for _, s := range r.Figures {
		byFigure = append(byFigure, []string{s.Figure, strconv.Itoa(s.N), fmt.Sprintf("%.0f %%", 100*s.Median), fmt.Sprintf("%.0f %%", 100*s.Worst), fmt.Sprintf("%.0f %%", 100*s.Covered)})
	}
	every = [][]string{{"row", "figure", "measured", "predicted", "80 %", "error"}}
	for _, c := range r.Errors {
		every = append(every, []string{c.ID, c.Figure, fmt.Sprintf("%.4g", c.Measured), fmt.Sprintf("%.4g", c.Predicted), fmt.Sprintf("%.4g to %.4g", c.Low, c.High), strings.ReplaceAll(fmt.Sprintf("%+.0f %%", 100*c.Error()), "-", "−")})
	}
	refused = [][]string{{"row", "why"}}
	for _, a := range r.Rows {
		switch {
		case a.Reason != "":
			refused = append(refused, []string{a.ID, a.Reason})
		case len(a.Assumed) > 0:
			refused = append(refused, []string{a.ID, "assumed: " + strings.Join(a.Assumed, "; ")})
		}
	}
	return byFigure, every, refused
}
