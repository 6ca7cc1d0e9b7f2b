package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/metrics"
	"github.com/headway-rl/headway/report"
)

// printSimulation prints a simulation for people: the figures that have a closed
// form beside it, queue health, and where every rollout went.
func printSimulation(w io.Writer, c simulateCase, doc simulation) error {
	var b strings.Builder
	d := c.document
	queue := fmt.Sprintf("policy %s, queue %d groups", d.Queue.Policy, d.QueueGroups())
	if d.Schedule == "synchronous" {
		queue = "synchronous schedule"
	}
	fmt.Fprintf(&b, "C %d · B %d · S %d · %s · seed %d · %d steps after %d of warm-up\n\n",
		d.Rollout.Concurrency, d.Train.Batch, d.Rollout.GroupSize, queue, d.Seed, d.Steps.Measured, d.Steps.Warmup)
	p := doc.Predicted
	b.WriteString(report.Table{
		Header: []string{"", "simulated", "closed form", "corrected"},
		Rows: [][]string{
			{"staleness, mean", report.Figure(doc.Staleness.Mean, 3), p.StalenessMean.Format(3), p.CorrectedStalenessMean.Format(3)},
			{"  pre-queue (PQS)", report.Figure(doc.PQS.Mean, 3), p.PQS.Format(3), ""},
			{"  in-queue (IQS)", report.Figure(doc.IQS.Mean, 3), p.IQS.Format(3), ""},
			{"train period, s", report.Figure(doc.PeriodS.Mean, 3), p.PeriodS.Format(3), p.CorrectedPeriodS.Format(3)},
		},
	}.String())
	b.WriteString("\n")
	b.WriteString(summaryTable(doc.Summary).String())
	b.WriteString("\n")
	b.WriteString(ledgerLine(d, doc) + "\n")
	if err := printFates(&b, d, doc); err != nil {
		return err
	}
	for i, warning := range p.Warnings {
		if i == 0 {
			b.WriteString("\nOn the closed form\n")
		}
		fmt.Fprintf(&b, "  - %s\n", warning)
	}
	fmt.Fprintf(&b, "\n%s events in %.2f s, %s per second\n", report.Count(doc.Events), doc.WallS, report.Count(int64(doc.EventsPerS)))
	_, err := io.WriteString(w, trimLines(b.String()))
	return err
}

// printFates prints what became of the tokens, where some were wasted, what
// interruptions did and, where it was asked, the bias of what was trained.
func printFates(b *strings.Builder, d config.Config, doc simulation) error {
	fates := report.Run{Partial: partialRows(doc.Summary, d.Rollout.Environment.Kind != "none"), Bias: doc.Bias, Window: windowOf(d.Steps.Warmup)}
	if doc.Waste.WastedShare > 0 {
		fates.Waste = report.WasteRows(doc.Summary)
	}
	if len(fates.Partial) == 0 && len(fates.Waste) == 0 && fates.Bias == nil {
		return nil
	}
	b.WriteString("\n")
	return report.Text(b, fates)
}

// partialRows are what interruptions did; what the environment's state was like
// says something only where there is an environment that takes time.
func partialRows(s metrics.Summary, environment bool) []report.Row {
	if !environment {
		s.Partial.StateLagMean, s.Partial.StateLagMax = 0, 0
	}
	return report.PartialRows(s)
}

// summaryTable is what a simulation and a resimulation say in the same words.
func summaryTable(s metrics.Summary) report.Table {
	interval := "–"
	if c := s.Confidence.StalenessMean95; c[1] > 0 {
		interval = fmt.Sprintf("%.3f to %.3f", c[0], c[1])
	}
	return report.Table{Rows: [][]string{
		{"staleness, 95 % interval of the mean", interval},
		{"staleness p50 · p95 · p99 · max", fmt.Sprintf("%d · %d · %d · %d", s.Staleness.P50, s.Staleness.P95, s.Staleness.P99, s.Staleness.Max)},
		{"token staleness, mean", report.Figure(s.TokenStaleness.Mean, 3)},
		{"utilization ρ", report.Figure(s.Utilization, 3)},
		{"trainer idle · rollout idle", report.Share(s.TrainerIdleRatio) + " · " + report.Share(s.RolloutIdleRatio)},
		{"rollouts/s produced · effective", report.Figure(s.Throughput.ProductionRolloutsPerS, 2) + " · " + report.Figure(s.Throughput.EffectiveRolloutsPerS, 2)},
		{"rollouts/s trained, of wall time · of step time", report.Figure(s.Throughput.ConsumptionRolloutsPerWallS, 2) + " · " + report.Figure(s.Throughput.ConsumptionRolloutsPerS, 2)},
		{"what binds", s.Throughput.Binding},
		{"mean tokens of finished rollouts · of trained", report.Figure(s.Length.SampledMeanTokens, 1) + " · " + report.Figure(s.Length.TrainedMeanTokens, 1)},
		{"tail multiplier", report.Figure(s.TailMultiplier, 3)},
	}}
}

// ledgerLine says where every rollout went; what is zero is left out.
func ledgerLine(d config.Config, doc simulation) string {
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
	if d.Steps.Warmup > 0 {
		line += "; warm-up included"
	}
	return line
}
