package cases

import (
	"math"
	"slices"
	"strings"
)

// Result is a table answered.
type Result struct {
	Rows      []Answer  `json:"rows"`
	Families  []Summary `json:"families"`
	Decisions Decisions `json:"decisions"`
	// CalibratedOn are the reference rows, FittedTo those that the constants were fitted to.
	CalibratedOn []string `json:"calibrated_on"`
	FittedTo     []string `json:"fitted_to"`
}

// Summary is how far the answers of one family and some grades are off.
type Summary struct {
	Family string `json:"family"`
	Grades string `json:"grades"`
	// N is the rows with a measurement and an answer.
	N int `json:"n"`
	// Median and Worst are of |predicted/measured − 1|, Bias the median of it with its sign.
	Median float64 `json:"median_error"`
	Worst  float64 `json:"worst_error"`
	Bias   float64 `json:"bias"`
	// Covered is the share of measurements within the interval, Ratio the median of its ends. Score is the mean interval
	// score of logarithms: the width, and 10 times the distance of a measurement outside. Lower is better.
	Covered float64 `json:"covered"`
	Ratio   float64 `json:"interval_ratio"`
	Score   float64 `json:"interval_score"`
	// Calibrated is the same with reference rows, nil without any.
	Calibrated *Summary `json:"calibrated,omitempty"`
}

// Decisions is how many pairs were called right.
type Decisions struct {
	N     int     `json:"n"`
	Right int     `json:"right"`
	Share float64 `json:"share"`
	// Async and More are the same of two rules of thumb, over the pairs on which they say something.
	AsyncN     int    `json:"always_asynchronous_n"`
	AsyncRight int    `json:"always_asynchronous_right"`
	MoreN      int    `json:"more_gpus_n"`
	MoreRight  int    `json:"more_gpus_right"`
	Pairs      []Pair `json:"pairs"`
}

// Summarize compares answers with what rows measured.
func Summarize(rows []Row, answers []Answer, f Fitted, calibratedOn []string) Result {
	out := Result{Rows: answers, CalibratedOn: calibratedOn, FittedTo: f.Rows}
	var names []string
	for _, a := range answers {
		if !slices.Contains(names, a.Family) {
			names = append(names, a.Family)
		}
	}
	for _, grades := range [][]string{{"A"}, {"B", "C"}} {
		for _, name := range names {
			if s := summarize(name, grades, answers); s.N > 0 {
				out.Families = append(out.Families, s)
			}
		}
		if s := summarize("", grades, answers); s.N > 0 {
			s.Family = "all"
			out.Families = append(out.Families, s)
		}
	}
	d := &out.Decisions
	d.Pairs = Pairs(rows, answers)
	for _, p := range d.Pairs {
		d.N++
		if p.Right {
			d.Right++
		}
		count(p.Async, &d.AsyncN, &d.AsyncRight)
		count(p.More, &d.MoreN, &d.MoreRight)
	}
	if d.N > 0 {
		d.Share = float64(d.Right) / float64(d.N)
	}
	return out
}

func count(said int, n, right *int) {
	if said != 0 {
		*n++
	}
	if said > 0 {
		*right++
	}
}

// summarize is one line; "" is all families.
func summarize(family string, grades []string, answers []Answer) Summary {
	s := Summary{Family: family, Grades: join(grades)}
	var plain, calibrated errorsOf
	for _, a := range answers {
		if family != "" && a.Family != family || !slices.Contains(grades, gradeOf(a)) || a.Measured == nil || a.Step == nil {
			continue
		}
		plain.add(*a.Step, *a.Measured)
		if a.Calibrated != nil {
			calibrated.add(*a.Calibrated, *a.Measured)
		}
	}
	plain.fill(&s)
	if len(calibrated.off) > 0 {
		s.Calibrated = &Summary{Family: s.Family, Grades: s.Grades}
		calibrated.fill(s.Calibrated)
	}
	return s
}

// gradeOf is the row's grade; a table of one's own has none and counts as A, and an unknown one as C.
func gradeOf(a Answer) string {
	switch grade := strings.ToUpper(a.Grade); grade {
	case "":
		return "A"
	case "A", "B":
		return grade
	}
	return "C"
}

func join(grades []string) string {
	if len(grades) == 1 {
		return grades[0]
	}
	return grades[0] + " and " + grades[1]
}

// errorsOf collects relative errors and intervals.
type errorsOf struct {
	off, ratios []float64
	covered     int
	score       float64
}

// outside is the weight of what lies outside an 80 % interval, 2/0.2: the interval score of Gneiting and Raftery (2007).
const outside = 10

func (e *errorsOf) add(p Estimate, measured float64) {
	e.off = append(e.off, p.Predicted/measured-1)
	low, high, at := math.Log(p.Low), math.Log(p.High), math.Log(measured)
	e.ratios = append(e.ratios, p.High/p.Low)
	e.score += high - low + outside*max(low-at, 0) + outside*max(at-high, 0)
	if at >= low && at <= high {
		e.covered++
	}
}

func (e *errorsOf) fill(s *Summary) {
	if s.N = len(e.off); s.N == 0 {
		return
	}
	var sizes []float64
	for _, o := range e.off {
		sizes = append(sizes, math.Abs(o))
	}
	s.Median, s.Worst, s.Bias, s.Ratio = median(sizes), slices.Max(sizes), median(e.off), median(e.ratios)
	s.Covered, s.Score = float64(e.covered)/float64(s.N), e.score/float64(s.N)
}

// median of values, the mean of the two in the middle.
func median(values []float64) float64 {
	v := slices.Clone(values)
	slices.Sort(v)
	n := len(v)
	if n == 0 {
		return 0
	}
	return (v[(n-1)/2] + v[n/2]) / 2
}
