package study

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/headway-rl/headway/observe/report"
)

// StalenessHTML prints the study as one page with its plots, which needs nothing else.
func StalenessHTML(w io.Writer, r StalenessResult, from Provenance) error {
	d := report.Document{Title: "Staleness against reward: " + r.task.Name, Summary: r.basis(), Warnings: r.warnings(), Headline: r.headline()}
	plain := func(all []string) []string {
		out := make([]string, len(all))
		for i, text := range all {
			out[i] = strings.ReplaceAll(strings.ReplaceAll(text, "**", ""), "*", "")
		}
		return out
	}
	d.Sections = append(d.Sections,
		report.Section{ID: "found", Title: "What was found", Source: strings.ReplaceAll(from.line(), "`", ""), Findings: plain(r.findings())},
		report.Section{ID: "limits", Title: "What can be concluded, and what cannot", Findings: plain(r.limits()), Details: plain(r.method())},
		report.Section{ID: "steps", Title: "Equal steps", Plots: append(r.lagPlots(), r.curvePlots()...),
			Text: []string{"Lines are means over the seeds; bands and upright lines 95 % intervals. Seeds begin at different accuracies, which the intervals of the curves have in them; the change from fresh data is taken seed by seed, and has not."}, Tables: []report.Table{r.outcomeTable()}},
		report.Section{ID: "offpolicy", Title: "How far off-policy", Plots: r.offPolicyPlots(), Tables: []report.Table{r.offPolicyTable(), r.driftTable()}})
	if t := r.checkTable(); len(t.Rows) > 0 {
		d.Sections = append(d.Sections, report.Section{ID: "checks", Title: "Is it the learning rate?", Plots: r.ratePlots(), Tables: []report.Table{t}})
	}
	s := report.Section{ID: "time", Title: "Equal time", Text: []string{"Every step costs the period that a simulation of the loop gives for its lag, and the forward passes of its correction. Lag 0 is colocated synchronous training in the pictures of means, and what changes are taken from. Time is in train steps alone."}}
	for i := range r.Hardware {
		s.Plots = append(s.Plots, r.timePlots(i)...)
		s.Tables = append(s.Tables, r.Hardware[i].table())
	}
	tables := r.tables()
	d.Sections = append(d.Sections, s, report.Section{ID: "corrections", Title: "The corrections", Tables: tables[len(tables)-1:]})
	return report.DocumentHTML(w, d)
}

// headline are the figures a reader wants first: the price of the largest lag, at its worst and at its best.
func (r *StalenessResult) headline() []report.Row {
	most := slices.Max(r.Options.Lags)
	rows := []report.Row{}
	if fresh := r.find(stalenessArm{0, stalenessReference, 1, 1}); fresh != nil {
		rows = append(rows, report.Row{Name: "fresh data", Value: report.Figure(fresh.Area.Mean, 3), Note: "mean accuracy over the steps"})
	}
	for _, end := range []struct {
		name string
		sign float64
	}{{"highest", 1}, {"lowest", -1}} {
		at := r.extreme(most, end.sign)
		if at < 0 || most == 0 {
			continue
		}
		row := report.Row{Name: fmt.Sprintf("lag %d, %s: %s", most, end.name, r.Arms[at].Correction), Value: report.Figure(r.Arms[at].Area.Mean, 3)}
		if like, _ := r.likeAtLag(at); len(like) > 0 {
			row.Note = "not told apart from " + strings.Join(like, ", ")
		}
		rows = append(rows, row)
	}
	if e := r.DriftExponent; !math.IsNaN(e.Mean) {
		rows = append(rows, report.Row{Name: "KL grows with lag to the power", Value: report.Figure(e.Mean, 2)})
	}
	return rows
}

// byLag is a figure of the grid against the lag, a series a correction.
func (r *StalenessResult) byLag(id, title, label string, of func(*StalenessArm) Estimate) report.Plot {
	p := report.Plot{ID: "by-lag-" + id, Title: title, Description: title + ", a line for each correction.", XLabel: "lag, versions", YLabel: label}
	for i, c := range r.Options.Corrections {
		s := series{report.Series{Name: c}}
		for _, lag := range r.Options.Lags {
			a := r.find(stalenessArm{lag, c, 1, 1})
			if lag == 0 {
				a = r.find(stalenessArm{0, stalenessReference, 1, 1})
			}
			if a != nil {
				s.add(float64(lag), of(a))
			}
		}
		p.Series = append(p.Series, s.upright(i)...)
	}
	return p
}

// lagPlots are what lag costs, against fresh data and in all.
func (r *StalenessResult) lagPlots() []report.Plot {
	change := r.byLag("change", "What lag costs: mean accuracy over the steps, less that with fresh data", "change of the accuracy", func(a *StalenessArm) Estimate {
		if a.Lag == 0 {
			return Estimate{}
		}
		return a.AreaChange
	})
	area := r.byLag("area", "Mean held-out accuracy over the steps, by lag", "accuracy", func(a *StalenessArm) Estimate { return a.Area })
	area.YMin, area.YMax = 0, accuracyTop
	return []report.Plot{change, area}
}

// accuracyTop is the end of axes of accuracies.
const accuracyTop = 1.05

// curvePlots are the learning curves: one picture a correction with a line a lag, and one for the
// largest lag with a line a correction.
func (r *StalenessResult) curvePlots() []report.Plot {
	var plots []report.Plot
	curve := func(name string, a *StalenessArm) report.Series {
		s := series{report.Series{Name: name}}
		for _, p := range a.Curve {
			s.add(float64(p.Step), p.Accuracy)
		}
		return s.Series
	}
	fresh := r.find(stalenessArm{0, stalenessReference, 1, 1})
	if most := slices.Max(r.Options.Lags); most > 0 {
		p := report.Plot{ID: "curves-lag", Title: fmt.Sprintf("Every correction at lag %d", most), Description: "Held-out accuracy over the train steps, a line for each correction.", XLabel: "train steps", YLabel: "held-out accuracy", YMin: 0, YMax: accuracyTop}
		for _, c := range r.Options.Corrections {
			if a := r.find(stalenessArm{most, c, 1, 1}); a != nil {
				p.Series = append(p.Series, curve(c, a))
			}
		}
		if fresh != nil && len(p.Series) < 8 {
			p.Series = append(p.Series, curve("lag 0", fresh))
		}
		plots = append(plots, p)
	}
	for _, c := range r.Options.Corrections {
		p := report.Plot{ID: "curves-" + c, Title: c + ", by lag", Description: "Held-out accuracy over the train steps with " + c + ", a line for each lag.", XLabel: "train steps", YLabel: "held-out accuracy", YMin: 0, YMax: accuracyTop}
		for _, lag := range r.Options.Lags {
			a := r.find(stalenessArm{lag, c, 1, 1})
			if lag == 0 {
				a = fresh
			}
			if a != nil && len(p.Series) < 8 {
				p.Series = append(p.Series, curve(fmt.Sprintf("lag %d", lag), a))
			}
		}
		plots = append(plots, p)
	}
	return plots
}

// series is a report's with its interval.
type series struct{ report.Series }

func (s *series) add(x float64, e Estimate) {
	s.X, s.Y = append(s.X, x), append(s.Y, e.Mean)
	s.Low, s.High = append(s.Low, e.Mean-e.Half), append(s.High, e.Mean+e.Half)
}

// upright is the line without its band, and each point with its interval, a little to the right
// of those of the series before.
func (s *series) upright(i int) []report.Series {
	line, marks := s.Series, s.Series
	line.Low, line.High = nil, nil
	marks.Marks, marks.Like = true, 2*i+1
	marks.X = make([]float64, len(s.X))
	for k, x := range s.X {
		marks.X[k] = x + 0.06*float64(i)
	}
	line.X = marks.X
	return []report.Series{line, marks}
}

// offPolicyPlots show clip fraction and sample size by lag, and between versions of an on-policy learner.
func (r *StalenessResult) offPolicyPlots() []report.Plot {
	plots := []report.Plot{
		r.byLag("clip", "Clip fraction, by lag", "share of tokens", func(a *StalenessArm) Estimate { return a.ClipFraction }),
		r.byLag("ess", "Effective sample size, by lag", "ESS/N", func(a *StalenessArm) Estimate { return a.EffectiveSample }),
		r.byLag("kl", "KL between trainer and rollout, by lag", "nats a token", func(a *StalenessArm) Estimate { return a.KL }),
	}
	if len(r.Drift) == 0 {
		return plots
	}
	against := func(id, title, label string, names []string, of ...func(*DriftEstimate) Estimate) report.Plot {
		p := report.Plot{ID: "drift-" + id, Title: title, Description: title + ", measured and predicted.", XLabel: "versions between", YLabel: label}
		for k, f := range of {
			s := series{report.Series{Name: names[k], Marks: k == 0}}
			for i := range r.Drift {
				s.add(float64(r.Drift[i].Lag), f(&r.Drift[i]))
			}
			if k > 0 {
				s.Low, s.High = nil, nil
			}
			p.Series = append(p.Series, s.Series)
		}
		return p
	}
	return append(plots,
		against("clip", "An on-policy learner: clip fraction between versions", "share of tokens", []string{"measured", "closed form", "normal"},
			func(d *DriftEstimate) Estimate { return d.ClipFraction }, func(d *DriftEstimate) Estimate { return d.ClipPredicted }, func(d *DriftEstimate) Estimate { return d.ClipNormal }),
		against("ess", "An on-policy learner: ESS/N between versions", "ESS/N", []string{"measured", "exp(−Var log r)"},
			func(d *DriftEstimate) Estimate { return d.EffectiveSample }, func(d *DriftEstimate) Estimate { return d.SamplePredicted }),
		against("kl", "An on-policy learner: KL between versions", "nats a token", []string{"measured"}, func(d *DriftEstimate) Estimate { return d.KL }))
}

// ratePlots show the largest lag at other learning rates, beside fresh data at them.
func (r *StalenessResult) ratePlots() []report.Plot {
	most := slices.Max(r.Options.Lags)
	p := report.Plot{ID: "rates", Title: fmt.Sprintf("Mean accuracy over the steps at lag %d, by learning rate", most), Description: "Mean held-out accuracy against the learning rate, for fresh data and three corrections.", XLabel: "learning rate, share of the task's", YLabel: "accuracy", YMin: 0, YMax: accuracyTop}
	for _, c := range append([]string{stalenessReference}, rateCorrections...) {
		s, lag := series{report.Series{Name: c}}, most
		if c == stalenessReference {
			s.Name, lag = "lag 0", 0
		}
		for _, rate := range slices.Sorted(slices.Values(append(slices.Clone(stalenessRates), 1))) {
			if a := r.find(stalenessArm{lag, c, rate, 1}); a != nil {
				s.add(rate, a.Area)
			}
		}
		if len(s.X) > 0 {
			line, marks := s.Series, s.Series
			line.Low, line.High = nil, nil
			marks.Marks, marks.Like = true, len(p.Series)+1
			p.Series = append(p.Series, line, marks)
		}
	}
	return []report.Plot{p}
}

// timePlots show PPO's clip on one hardware over time, and what lags come to.
func (r *StalenessResult) timePlots(i int) []report.Plot {
	h := &r.Hardware[i]
	curves := report.Plot{ID: fmt.Sprintf("time-curves-%d", i), Title: h.Name + ": ppo-clip over time", Description: "Held-out accuracy against time, a line for each lag.", XLabel: "time, train steps alone", YLabel: "held-out accuracy", YMin: 0, YMax: accuracyTop, XMin: 0, XMax: h.Time}
	means := report.Plot{ID: fmt.Sprintf("time-means-%d", i), Title: h.Name + ": mean accuracy over equal time, by lag", Description: "Mean held-out accuracy over the same time against the lag, a line for each correction.", XLabel: "lag, versions", YLabel: "accuracy", YMin: 0, YMax: accuracyTop}
	fresh := stalenessArm{0, stalenessReference, 1, 1}
	curve := func(name string, of stalenessArm, period float64) {
		a := r.find(of)
		if a == nil || len(curves.Series) == 8 {
			return
		}
		s := series{report.Series{Name: name}}
		for _, p := range a.Curve {
			if t := float64(p.Step) * period; t <= h.Time {
				s.add(t, p.Accuracy)
			}
		}
		for _, t := range h.Arms { // the last point lies before the end of the time
			if t.Lag == a.Lag && t.Correction == a.Correction && t.Period == period && s.X[len(s.X)-1] < h.Time {
				s.add(h.Time, t.Accuracy)
			}
		}
		curves.Series = append(curves.Series, s.Series)
	}
	curve("lag 0, "+scheduleColocated, fresh, h.Colocated)
	for _, price := range h.Prices {
		if price.Lag == 0 {
			curve("lag 0, "+scheduleApart, fresh, price.Period)
			continue
		}
		curve(fmt.Sprintf("lag %d", price.Lag), stalenessArm{price.Lag, "ppo-clip", 1, 1}, price.Period)
	}
	for k, c := range r.Options.Corrections {
		s := series{report.Series{Name: c}}
		for _, a := range h.Arms {
			if a.Correction == c || a.Schedule == scheduleColocated {
				s.add(float64(a.Lag), a.Area)
			}
		}
		means.Series = append(means.Series, s.upright(k)...)
	}
	return []report.Plot{curves, means}
}
