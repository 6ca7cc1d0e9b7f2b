package paired

import (
	"errors"
	"fmt"
	"math"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Ratio is new over old, the geometric mean over rounds, with the ends of its 95 % interval.
type Ratio struct {
	Mean, Low, High float64
	// Rounds is the number of rounds that it is of.
	Rounds int
}

// String prints the ratio with its interval.
func (r Ratio) String() string {
	return fmt.Sprintf("%.3f (95 %% interval %.3f to %.3f, %d rounds)", r.Mean, r.Low, r.High, r.Rounds)
}

// Differs says whether 1 lies outside of the interval.
func (r Ratio) Differs() bool { return r.Low > 1 || r.High < 1 }

// Compare has both sides measured in turn, in rounds of old, new, new, old, after one round that only warms up.
// A machine that slows down evenly slows both sides of a round alike. From measure come one or more figures above
// 0, of the same number each time; Compare returns the ratio of each.
func Compare[T any](oldSide, newSide T, rounds int, measure func(side T, round int) ([]float64, error)) ([]Ratio, error) {
	if rounds < 2 {
		return nil, fmt.Errorf("%d rounds: an interval needs at least 2", rounds)
	}
	var logs [][]float64 // by figure, of each round
	for round := range rounds + 1 {
		var sums []float64
		for i, side := range []T{oldSide, newSide, newSide, oldSide} {
			figures, err := measure(side, round)
			if err != nil {
				return nil, err
			}
			if sums == nil {
				sums = make([]float64, len(figures))
			}
			sign := 0.5
			if i == 0 || i == 3 {
				sign = -0.5
			}
			for k, figure := range figures {
				if !(figure > 0) {
					return nil, errors.New("a measurement is not above 0: measure for longer")
				}
				sums[k] += sign * math.Log(figure)
			}
		}
		if round == 0 {
			logs = make([][]float64, len(sums))
			continue
		}
		for k, sum := range sums {
			logs[k] = append(logs[k], sum)
		}
	}
	ratios := make([]Ratio, len(logs))
	for k, values := range logs {
		mean, half := Interval(values)
		ratios[k] = Ratio{math.Exp(mean), math.Exp(mean - half), math.Exp(mean + half), rounds}
	}
	return ratios, nil
}

// Interval is the mean of independent values and half the width of its 95 % interval by Student's t: infinite
// for fewer than 2 values.
func Interval(values []float64) (mean, half float64) {
	n := float64(len(values))
	if n < 2 {
		return stat.Mean(values, nil), math.Inf(1)
	}
	mean, deviation := stat.MeanStdDev(values, nil)
	return mean, distuv.StudentsT{Sigma: 1, Nu: n - 1}.Quantile(0.975) * stat.StdErr(deviation, n)
}
