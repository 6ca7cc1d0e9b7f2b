package experiment

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/headway-rl/headway/observe/report"
	"github.com/headway-rl/headway/predict/theory"
)

// Text prints a prediction for people: the regime, the figures, the dominant part,
// and the gain of each lever.
func (a Answer) Text(w io.Writer, in theory.Input) error {
	p := a.Prediction
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n%s", predictSetting(in, p), regimeSentence(in, p))
	if a.Simulated != nil {
		fmt.Fprintf(&b, " What binds: %s.", a.Simulated.Binding)
	}
	if a.Target.bindsThroughput() {
		b.WriteString(" It is the target that holds rollouts back.")
	}
	b.WriteString("\n\n")
	predictFigures(&b, in, a)
	if sentence := dominantSentence(p); sentence != "" {
		if where, _, cut := strings.Cut(sentence, ": "); cut && a.Target != nil { // whose mean no lever moves
			sentence = where + "."
		}
		fmt.Fprintf(&b, "\n%s\n", sentence)
	}
	if a.Target != nil {
		b.WriteString("\n")
		a.Target.print(&b)
	}
	predictLevers(&b, a)
	for i, warning := range p.Warnings {
		if i == 0 {
			fmt.Fprintf(&b, "\nWarnings\n")
		}
		fmt.Fprintf(&b, "  - %s\n", warning)
	}
	_, err := io.WriteString(w, report.TrimLines(b.String()))
	return err
}

// predictSetting repeats what was understood.
func predictSetting(in theory.Input, p theory.Prediction) string {
	tail := fmt.Sprintf("M %.3g", p.TailMultiplier)
	if in.Lengths != nil {
		tail = fmt.Sprintf("mean %.0f tokens, %s", in.Lengths.Mean(), tail)
	}
	queue := fmt.Sprintf("policy %s, q %s", in.Policy, report.Short(in.QueueFactor))
	if in.Policy == theory.PolicySynchronous {
		queue = "synchronous schedule"
	}
	return fmt.Sprintf("C %s · B %s · S %d · ρ %s · %s · %s", report.Short(in.ConcurrencyRollouts), report.Short(in.BatchRollouts), in.GroupSize, report.Short(in.Utilization), tail, queue)
}

// regimeSentence says which side waits.
func regimeSentence(in theory.Input, p theory.Prediction) string {
	effective := ""
	if report.Short(p.Utilization) != report.Short(in.Utilization) {
		effective = fmt.Sprintf(" (effective ρ %s)", report.Short(p.Utilization))
	}
	if in.Policy == theory.PolicySynchronous {
		return "Synchronous: each batch is generated, then trained, so each side waits for the other" + effective + "."
	}
	if p.Regime == theory.RolloutBound {
		return "Rollout-bound: the trainer waits for rollouts" + effective + "."
	}
	return "Train-bound: rollouts wait for the trainer" + effective + "."
}

// predictFigures prints the table of staleness and period.
func predictFigures(b *strings.Builder, in theory.Input, a Answer) {
	p, decimals := a.Prediction, 2
	if !p.Smooth {
		decimals = 0 // further digits would pretend to know
	}
	table := tabwriter.NewWriter(b, 0, 0, 3, ' ', 0)
	columns := "published\tcorrected"
	if a.Simulated != nil {
		columns = "simulated\t"
		decimals = 2
	}
	fmt.Fprintf(table, "Staleness, versions\t%s\n", columns)
	second := func(f theory.Figure, decimals int) string {
		if a.Simulated != nil {
			return ""
		}
		return f.Format(decimals)
	}
	row := func(name string, published, corrected theory.Figure) {
		fmt.Fprintf(table, "  %s\t%s\t%s\n", name, published.Format(decimals), second(corrected, decimals))
	}
	row("pre-queue (PQS)", p.PQS, p.Corrected.PQS)
	row("in-queue (IQS)", p.IQS, p.Corrected.IQS)
	quantiles := "\t\t"
	row("mean", p.Staleness.Mean, p.Corrected.Mean)
	if a.Simulated != nil {
		if between := a.Simulated.StalenessMean95; between != nil {
			fmt.Fprintf(table, "  its 95 %% interval\t%.*f to %.*f\n", decimals, between[0], decimals, between[1])
		}
		quantiles = "\t"
	}
	fmt.Fprintf(table, "  p50 · p95 · p99%s%s · %s · %s\n", quantiles, p.Staleness.P50.Format(0), p.Staleness.P95.Format(0), p.Staleness.P99.Format(0))
	if share, known := p.Staleness.ShareAboveBudget.Value(); known {
		fmt.Fprintf(table, "  share above %d%s%.2g %%\n", in.BudgetVersions, quantiles, 100*share)
	}
	fmt.Fprintf(table, "  mean over tokens\t%s\t\n", p.TokenStaleness.Format(decimals))
	fmt.Fprintf(table, "Period between updates\t\t\n")
	fmt.Fprintf(table, "  over the train step\t%s\t%s\n", p.Period.RelativeToStep.Format(3), second(p.Corrected.Period.RelativeToStep, 3))
	if _, known := p.Period.S.Value(); known {
		fmt.Fprintf(table, "  seconds\t%s\t%s\n", p.Period.S.Format(2), second(p.Corrected.Period.S, 2))
	}
	flush(table)
}

// dominantSentence says where staleness comes from and which lever acts there.
func dominantSentence(p theory.Prediction) string {
	pqs, _ := p.PQS.Value()
	iqs, _ := p.IQS.Value()
	switch p.Dominant {
	case theory.DominantPQS:
		return fmt.Sprintf("Most staleness (%.0f %%) arises before the queue, while groups generate: a shorter tail or a larger batch acts there.", 100*pqs/(pqs+iqs))
	case theory.DominantIQS:
		return fmt.Sprintf("Most staleness (%.0f %%) arises in the queue: a smaller queue factor acts there, or a split that lets the trainer keep up.", 100*iqs/(pqs+iqs))
	}
	return ""
}

// predictLevers prints what single changes would buy, and below the table what
// each of them holds fixed, since that decides its sign.
func predictLevers(b *strings.Builder, a Answer) {
	p := a.Prediction
	if len(p.Levers) == 0 {
		return
	}
	fmt.Fprintln(b)
	table := tabwriter.NewWriter(b, 0, 0, 3, ' ', 0)
	if a.Target != nil {
		a.Target.printLevers(b, p.Levers)
	} else if a.Simulated != nil {
		fmt.Fprintf(table, "Levers, simulated\tstaleness\tperiod ×\n")
		for _, lever := range p.Levers {
			fmt.Fprintf(table, "  %s\t%s\t%s\n", lever.Change, lever.StalenessMean.Format(2), lever.PeriodRatio.Format(2))
		}
	} else {
		fmt.Fprintf(table, "Levers\tstaleness\tcorrected\tperiod ×\n")
	}
	for _, lever := range p.Levers {
		if a.Simulated != nil {
			break
		}
		fmt.Fprintf(table, "  %s\t%s\t%s\t%s\n", lever.Change, lever.StalenessMean.Format(2), lever.CorrectedMean.Format(2), lever.PeriodRatio.Format(2))
	}
	flush(table)
	last := ""
	for _, lever := range p.Levers {
		if lever.Name == last {
			continue
		}
		last = lever.Name
		fmt.Fprintf(b, "  %s holds fixed: %s.\n", lever.Name, lever.HoldsFixed)
		if lever.Note != "" {
			fmt.Fprintf(b, "    %s\n", lever.Note)
		}
	}
}

// flush writes a table into its builder, which cannot fail.
func flush(table *tabwriter.Writer) {
	if err := table.Flush(); err != nil {
		panic(err)
	}
}
