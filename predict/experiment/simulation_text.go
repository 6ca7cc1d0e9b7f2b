package experiment

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/observe/attribution"
	"github.com/headway-rl/headway/observe/control"
	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/observe/report"
)

// Text prints a simulation of a document for people: the figures that have a closed
// form beside it, queue health, and where every rollout went.
func (doc *Simulation) Text(w io.Writer, d config.Config) error {
	var b strings.Builder
	queue := fmt.Sprintf("policy %s, queue %d groups", d.Queue.Policy, d.QueueGroups())
	if d.Schedule == "synchronous" {
		queue = "synchronous schedule"
	}
	fmt.Fprintf(&b, "C %d · B %d · S %d · %s · seed %d · %d steps after %s\n\n",
		d.Rollout.Concurrency, d.Train.Batch, d.Rollout.GroupSize, queue, d.Seed, d.Steps.Measured, warmupLine(doc.Warmup))
	if !doc.Settled {
		b.WriteString("NOT SETTLED: the means below are of this window alone\n")
		for _, u := range doc.Unsettled {
			fmt.Fprintf(&b, "  - %s\n", u.Why)
		}
		b.WriteString("\n")
	}
	p, in := doc.Predicted, doc.Confidence
	b.WriteString(report.Table{
		Header: []string{"", "simulated", "± 95 %", "closed form", "corrected"},
		Rows: [][]string{
			{"staleness, mean", report.Figure(doc.Staleness.Mean, 3), halfOf(in.StalenessMean), p.StalenessMean.Format(3), p.CorrectedStalenessMean.Format(3)},
			{"  pre-queue (PQS)", report.Figure(doc.PQS.Mean, 3), halfOf(in.PQSMean), p.PQS.Format(3), ""},
			{"  in-queue (IQS)", report.Figure(doc.IQS.Mean, 3), halfOf(in.IQSMean), p.IQS.Format(3), ""},
			{"train period, s", report.Figure(doc.PeriodS.Mean, 3), halfOf(in.PeriodS), p.PeriodS.Format(3), p.CorrectedPeriodS.Format(3)},
		},
	}.String())
	b.WriteString("\n")
	b.WriteString(histogramBars(doc.Staleness.Histogram))
	b.WriteString(summaryTable(doc).String())
	if rows := report.AttributionRows(doc.Attribution); len(rows) > 0 {
		b.WriteString("\n" + report.Table{Title: "Where staleness comes from, in versions and share", Rows: report.Cells(rows)}.String())
	}
	b.WriteString("\n" + report.Table{Title: "What both sides waited for", Rows: report.Cells(report.IdleRows(doc.Attribution))}.String())
	if rows := latencyRows(doc.Summary); len(rows) > 0 {
		b.WriteString("\n" + report.Table{Title: fmt.Sprintf("A rollout's %s s, and what they go to", report.Figure(doc.Latency.EndToEndS, 1)), Rows: rows}.String())
	}
	if rows := control.Rows(doc.Control); len(rows) > 0 {
		b.WriteString("\n" + report.Table{Title: control.Title, Rows: report.Cells(rows)}.String())
	}
	b.WriteString("\n")
	b.WriteString(doc.ledgerLine() + "\n")
	if err := doc.printFates(&b, d); err != nil {
		return err
	}
	for i, warning := range p.Warnings {
		if i == 0 {
			b.WriteString("\nOn the closed form\n")
		}
		fmt.Fprintf(&b, "  - %s\n", warning)
	}
	fmt.Fprintf(&b, "\n%s events in %.2f s, %s per second\n", report.Count(doc.Events), doc.WallS, report.Count(int64(doc.EventsPerS)))
	_, err := io.WriteString(w, report.TrimLines(b.String()))
	return err
}

// printFates prints what became of the tokens, where some were wasted, what
// interruptions did and, where it was asked, the bias of what was trained.
func (doc *Simulation) printFates(b *strings.Builder, d config.Config) error {
	fates := report.Run{Partial: report.InterruptionRows(doc.Summary, d.Modelled.Environment.Kind != "none"), Bias: doc.Bias, Window: report.WindowText(doc.Warmup.Steps)}
	if doc.Waste.WastedShare > 0 {
		fates.Waste = report.WasteRows(doc.Summary)
	}
	if len(fates.Partial) == 0 && len(fates.Waste) == 0 && fates.Bias == nil {
		return nil
	}
	b.WriteString("\n")
	return report.Text(b, fates)
}

// warmupLine says how long the warm-up was, and who chose it.
func warmupLine(w Warmup) string {
	line := fmt.Sprintf("%s of warm-up", report.Count(int64(w.Steps)))
	if w.Automatic {
		line += ", chosen automatically"
	}
	return line
}

// halfOf prints half the width of an interval, "–" for none.
func halfOf(interval *[2]float64) string {
	if interval == nil {
		return "–"
	}
	return report.Figure((interval[1]-interval[0])/2, 3)
}

// Size of the picture of a distribution.
const (
	barRows  = 16
	barCells = 40
)

// histogramBars draws how stale the trained groups were: a row for every staleness
// or, where those are many, for a range of equal length.
func histogramBars(histogram []int64) string {
	first, last, all, most := -1, -1, int64(0), int64(1)
	for k, n := range histogram {
		if n > 0 {
			last = k
			if first < 0 {
				first = k
			}
		}
		all += n
	}
	if first == last { // one value needs no picture
		return ""
	}
	wide := (last - first + barRows) / barRows
	counts := make([]int64, (last-first)/wide+1)
	for k := first; k <= last; k++ {
		counts[(k-first)/wide] += histogram[k]
		most = max(most, counts[(k-first)/wide])
	}
	var b strings.Builder
	b.WriteString("staleness of trained groups\n")
	for i, n := range counts {
		name := fmt.Sprint(first + i*wide)
		if wide > 1 {
			name += fmt.Sprintf("–%d", min(first+(i+1)*wide-1, last))
		}
		fmt.Fprintf(&b, "  %9s %s %s\n", name, bar(float64(n)/float64(most)), report.Share(float64(n)/float64(all)))
	}
	return b.String() + "\n"
}

// eighths of a cell, as block characters.
var eighths = []string{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"}

// bar draws a share of the whole width; what is not nothing shows.
func bar(share float64) string {
	n := int(math.Round(share * barCells * 8))
	if share > 0 {
		n = max(n, 1)
	}
	return strings.Repeat("█", n/8) + eighths[n%8]
}

// summaryTable is what a simulation says beside its means.
func summaryTable(doc *Simulation) report.Table {
	s, in := doc.Summary, doc.Confidence
	idle := report.Share(s.TrainerIdleRatio)
	if i := in.TrainerIdleRatio; i != nil && i[1]-i[0] > 0 {
		idle += " ± " + report.Figure(50*(i[1]-i[0]), 1)
	}
	token := report.Figure(s.TokenStaleness.Mean, 3)
	if in.TokenStalenessMean != nil {
		token += " ± " + halfOf(in.TokenStalenessMean)
	}
	return report.Table{Rows: [][]string{
		{"staleness p50 · p95 · p99 · max", fmt.Sprintf("%d · %d · %d · %d", s.Staleness.P50, s.Staleness.P95, s.Staleness.P99, s.Staleness.Max)},
		{"token staleness, mean", token},
		{"utilization ρ", report.Figure(s.Utilization, 3)},
		{"trainer idle · rollout idle", idle + " · " + report.Share(s.RolloutIdleRatio)},
		{"rollouts/s produced · effective", report.Figure(s.Throughput.ProductionRolloutsPerS, 2) + " · " + report.Figure(s.Throughput.EffectiveRolloutsPerS, 2)},
		{"rollouts/s trained, of wall time · of step time", report.Figure(s.Throughput.ConsumptionRolloutsPerWallS, 2) + " · " + report.Figure(s.Throughput.ConsumptionRolloutsPerS, 2)},
		{"what binds", strings.Join(attribution.Binding(s.Throughput.Binding, doc.Attribution.Engines), " and ")},
		{"mean tokens of finished rollouts · of trained", report.Figure(s.Length.SampledMeanTokens, 1) + " · " + report.Figure(s.Length.TrainedMeanTokens, 1)},
		{"tail multiplier · at the length cap", report.Figure(s.TailMultiplier, 3) + " · " + report.Share(s.Length.TruncatedShare)},
	}}
}

// latencyRows are the parts of a rollout's time and what the services around the
// engines did; none where a rollout does nothing but generate.
func latencyRows(s metrics.Summary) [][]string {
	l, v := s.Latency, s.Services
	found := ""
	if v.PrefixHit > 0 {
		found = report.Share(v.PrefixHit) + " of contexts found in caches"
	}
	parts := []struct {
		name string
		s    float64
		note string
	}{
		{"waits for a prefill", l.QueueS, ""}, {"prefill", l.PrefillS, found}, {"generates", l.DecodeS, ""},
		{"waits for a sandbox", l.SandboxWaitS, ""},
		{"sandbox starts", l.SandboxStartS, fmt.Sprintf("live: %s, at most %d; %s of starts failed", report.Figure(v.SandboxesLiveMean, 1), v.SandboxesLiveMax, report.Share(v.SandboxErrorRate))},
		{"waits for a tool", l.ToolWaitS, ""}, {"tools", l.ToolS, "calls a rollout: " + report.Figure(v.ToolCallsPerRollout, 1)},
		{"environment", l.EnvironmentS, ""}, {"waits for the verifier", l.VerifierWaitS, ""}, {"verifier", l.VerifierS, ""},
		{"waits for a scorer", l.ScorerWaitS, ""}, {"scorer", l.ScorerS, ""},
		{"stands interrupted", l.InterruptedS, ""},
	}
	var rows [][]string
	for _, p := range parts {
		if p.s > 0 {
			rows = append(rows, []string{p.name, report.Figure(p.s, 2), report.Share(p.s / l.EndToEndS), p.note})
		}
	}
	if len(rows) < 2 { // nothing to tell apart
		rows = nil
	}
	if v.Validations > 0 {
		rows = append(rows, []string{"validation", report.Figure(v.ValidationS/float64(v.Validations), 2), report.Share(v.ValidationShare), fmt.Sprintf("each of %d; the share is of the window", v.Validations)})
	}
	if v.EngineDownRatio > 0 {
		rows = append(rows, []string{"engines gone", "", report.Share(v.EngineDownRatio), fmt.Sprintf("losses: %d; the share is of all engines' time", v.EnginesLost)})
	}
	return rows
}

// ledgerLine says where every rollout went; what is zero is left out.
func (doc *Simulation) ledgerLine() string {
	l := doc.Ledger
	parts := []string{fmt.Sprintf("%s rollouts: %s trained", report.Count(l.Admitted), report.Count(l.Trained))}
	for _, part := range []struct {
		name string
		n    int64
	}{
		{"evicted", l.Evicted}, {"discarded", l.Discarded}, {"filtered", l.Filtered}, {"pruned", l.Pruned}, {"cancelled", l.Cancelled},
		{"failed", l.Failed}, {"in flight", l.InFlight}, {"waiting", l.Waiting}, {"queued", l.Queued}, {"leased", l.Leased},
	} {
		if part.n > 0 {
			parts = append(parts, fmt.Sprintf("%s %s", report.Count(part.n), part.name))
		}
	}
	line := strings.Join(parts, ", ")
	if doc.Warmup.Steps > 0 {
		line += "; warm-up included"
	}
	return line
}
