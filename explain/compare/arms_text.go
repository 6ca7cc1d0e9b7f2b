package compare

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/headway-rl/headway/drive/replay"
	"github.com/headway-rl/headway/observe/control"
	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/observe/report"
)

// resimulatedRows are the figures of a resimulation in the order in which they are printed.
var resimulatedRows = []struct {
	name, key string
	of        func(*metrics.Summary) float64
	print     func(float64) string
}{
	{"staleness, mean", "staleness_mean", func(s *metrics.Summary) float64 { return s.Staleness.Mean }, report.Decimals(3)},
	{"staleness, p95", "", func(s *metrics.Summary) float64 { return float64(s.Staleness.P95) }, report.Decimals(0)},
	{"pre-queue (PQS)", "pqs", func(s *metrics.Summary) float64 { return s.PQS.Mean }, report.Decimals(3)},
	{"in-queue (IQS)", "iqs", func(s *metrics.Summary) float64 { return s.IQS.Mean }, report.Decimals(3)},
	{"train period, s", "period_s", func(s *metrics.Summary) float64 { return s.PeriodS.Mean }, report.Decimals(4)},
	{"train step, s", "", func(s *metrics.Summary) float64 { return s.StepS.Mean }, report.Decimals(4)},
	{"utilization ρ", "", func(s *metrics.Summary) float64 { return s.Utilization }, report.Decimals(3)},
	{"tail multiplier", "", func(s *metrics.Summary) float64 { return s.TailMultiplier }, report.Decimals(3)},
	{"trainer idle", "trainer_idle_ratio", func(s *metrics.Summary) float64 { return s.TrainerIdleRatio }, report.Share},
	{"rollout idle", "rollout_idle_ratio", func(s *metrics.Summary) float64 { return s.RolloutIdleRatio }, report.Share},
	{"rollouts/s trained", "", func(s *metrics.Summary) float64 { return s.Throughput.ConsumptionRolloutsPerWallS }, report.Decimals(1)},
	{"tokens never trained", "", func(s *metrics.Summary) float64 { return s.Waste.WastedShare }, report.Share},
}

// Text prints arms for a terminal of so many columns.
func (doc Resimulation) Text(w io.Writer, columns int) error {
	var b strings.Builder
	line := func(label, format string, values ...any) {
		b.WriteString(report.Indented(label, fmt.Sprintf(format, values...), columns))
	}
	b.WriteString(doc.unsettledText(columns))
	switch {
	case len(doc.Arms) == 1 && len(doc.Arms[0].Set) == 0:
		b.WriteString(reproducedTable(doc).Fit(columns))
	case len(doc.Arms) == 1:
		b.WriteString(armTable(doc).Fit(columns))
	default:
		b.WriteString(armsTable(doc).Fit(columns))
		line("", "± 95 %% intervals over train steps; Δ against the run's own settings resimulated, paired by rollouts and steps; ~ not told from chance")
	}
	b.WriteString("\n")
	line("", "the run's own settings, resimulated: staleness %s; measured %s (%s)", report.Figure(doc.Own.Summary.Staleness.Mean, 3),
		report.Figure(doc.Measured.Staleness.Mean, 3), signedShare(doc.Own.Summary.Staleness.Mean-doc.Measured.Staleness.Mean, doc.Measured.Staleness.Mean))
	b.WriteString(controlPlayed(doc))
	var said []string
	for _, warning := range doc.Warnings {
		said = append(said, warning)
		line("  - ", "%s", warning)
	}
	for _, arm := range doc.Arms {
		name := ""
		if len(doc.Arms) > 1 {
			name = strings.Join(arm.Set, " ") + ": "
		}
		if arm.Refused == "" && (len(doc.Arms) == 1 || arm.Extrapolated >= 0.01) {
			line("", "%s%s of the rollouts and steps were made up from others of the run", name, report.Share(arm.Extrapolated))
		}
		for _, warning := range arm.Warnings {
			if !slices.Contains(said, warning) {
				said = append(said, warning)
				line("  - ", "%s%s", name, warning)
			}
		}
	}
	_, err := io.WriteString(w, report.TrimLines(b.String()))
	return err
}

// controlPlayed says that a run's controller plays in every arm, and how it keeps the target; "" without one.
func controlPlayed(doc Resimulation) string {
	var b strings.Builder
	say := func(name string, s *metrics.Summary) {
		if s == nil || len(control.Rows(s.Control)) == 0 {
			return
		}
		if b.Len() == 0 {
			b.WriteString("the run's controller plays in every resimulation, and moves the settings as the measurements there ask for:\n")
		}
		fmt.Fprintf(&b, "  %s: %s\n", name, control.Forecast(s.Control))
	}
	say("the run itself", &doc.Measured)
	say("its own settings, resimulated", doc.Own.Summary)
	for _, arm := range doc.Arms {
		if len(arm.Set) > 0 {
			say(strings.Join(arm.Set, " "), arm.Summary)
		}
	}
	return b.String()
}

// dominantOf names the largest source of an arm's staleness, with its share.
func dominantOf(a Arm) string {
	if a.Attribution == nil || a.Attribution.Dominant == "" || a.Summary.Staleness.Mean == 0 {
		return "–"
	}
	return fmt.Sprintf("%s %s", a.Attribution.Dominant, report.Share(a.Attribution.Share))
}

// reproducedTable sets the run beside its own settings, resimulated.
func reproducedTable(doc Resimulation) report.Table {
	own := doc.Own
	t := report.Table{Title: fmt.Sprintf("%s resimulated with the run's own settings: %d train steps after %d of warm-up", doc.Run, own.Steps, own.WarmupSteps),
		Header: []string{"", "resimulated", "± 95 %", "the run itself"}}
	for _, row := range resimulatedRows {
		t.Rows = append(t.Rows, []string{row.name, row.print(row.of(own.Summary)), halfInterval(own.Estimates[row.key].Interval95, row.print), row.print(row.of(&doc.Measured))})
	}
	measured := "–"
	if doc.MeasuredAttribution.Dominant != "" {
		measured = fmt.Sprintf("%s %s", doc.MeasuredAttribution.Dominant, report.Share(doc.MeasuredAttribution.Share))
	}
	t.Rows = append(t.Rows, []string{"largest source", dominantOf(own), "", measured})
	return t
}

// armTable sets one setting beside the run's own, resimulated and measured.
func armTable(doc Resimulation) report.Table {
	arm := doc.Arms[0]
	t := report.Table{Title: fmt.Sprintf("%s resimulated with %s: %d train steps after %d of warm-up", doc.Run, strings.Join(arm.Set, ", "), arm.Steps, arm.WarmupSteps),
		Header: []string{"", "resimulated", "± 95 %", "own settings", "difference", "± 95 %", "the run itself"}}
	for _, row := range resimulatedRows {
		e := arm.Estimates[row.key]
		change, half := "", ""
		if e.Difference != nil {
			change, half = report.Signed(*e.Difference, row.print), halfInterval(e.Difference95, row.print)
		}
		t.Rows = append(t.Rows, []string{row.name, row.print(row.of(arm.Summary)), halfInterval(e.Interval95, row.print), row.print(row.of(doc.Own.Summary)), change, half, row.print(row.of(&doc.Measured))})
	}
	t.Rows = append(t.Rows, []string{"largest source", dominantOf(arm), "", dominantOf(doc.Own)})
	return t
}

// armsTable has a row a setting.
func armsTable(doc Resimulation) report.Table {
	t := report.Table{Title: fmt.Sprintf("%s resimulated with %s", doc.Run, report.Counted(len(doc.Arms), "setting")),
		Header: []string{"setting", "staleness", "± 95 %", "Δ", "± 95 %", "PQS", "IQS", "p95", "period s", "Δ", "trainer idle", "rollout idle", "not trained", "largest source"}}
	t.Rows = append(t.Rows, []string{"the run itself", report.Figure(doc.Measured.Staleness.Mean, 3), "", "", "", report.Figure(doc.Measured.PQS.Mean, 3), report.Figure(doc.Measured.IQS.Mean, 3),
		fmt.Sprint(doc.Measured.Staleness.P95), report.Figure(doc.Measured.PeriodS.Mean, 4), "", report.Share(doc.Measured.TrainerIdleRatio), report.Share(doc.Measured.RolloutIdleRatio),
		report.Share(doc.Measured.Waste.WastedShare)})
	for _, arm := range append([]Arm{doc.Own}, doc.Arms...) {
		name := cmp.Or(strings.Join(arm.Set, " "), "its own settings")
		if arm.Refused != "" {
			t.Rows = append(t.Rows, []string{name, "refused"})
			continue
		}
		s, e, period := arm.Summary, arm.Estimates["staleness_mean"], arm.Estimates["period_s"]
		change, half, slower := "", "", ""
		if e.Difference != nil {
			change, half = report.Signed(*e.Difference, report.Decimals(3))+doubt(e), halfInterval(e.Difference95, report.Decimals(3))
		}
		if period.Difference != nil {
			slower = signedShare(*period.Difference, period.Mean-*period.Difference) + doubt(period)
		}
		t.Rows = append(t.Rows, []string{name, report.Figure(s.Staleness.Mean, 3), halfInterval(e.Interval95, report.Decimals(3)), change, half, report.Figure(s.PQS.Mean, 3), report.Figure(s.IQS.Mean, 3),
			fmt.Sprint(s.Staleness.P95), report.Figure(s.PeriodS.Mean, 4), slower, report.Share(s.TrainerIdleRatio), report.Share(s.RolloutIdleRatio), report.Share(s.Waste.WastedShare), dominantOf(arm)})
	}
	return t
}

// doubt marks a difference that is not told from chance.
func doubt(e replay.Estimate) string {
	if sameFigure(e) {
		return " ~"
	}
	return ""
}

// halfInterval prints half the width of an interval, nothing for none.
func halfInterval(interval *[2]float64, print func(float64) string) string {
	if interval == nil {
		return ""
	}
	return print((interval[1] - interval[0]) / 2)
}
