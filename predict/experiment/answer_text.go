package experiment

import (
	"fmt"
	"strings"

	"github.com/headway-rl/headway/observe/report"
	"github.com/headway-rl/headway/predict/theory"
)

// Text prints a prediction for people: the regime, the figures, the dominant part,
// and the gain of each lever.
func (a Answer) Text(in theory.Input, columns int) string {
	p := a.Prediction
	var b strings.Builder
	regime := regimeSentence(in, p)
	if a.Simulated != nil {
		regime += fmt.Sprintf(" What binds: %s.", a.Simulated.Binding)
	}
	if a.Target.bindsThroughput() {
		regime += " It is the target that holds rollouts back."
	}
	fmt.Fprintf(&b, "%s\n%s\n", report.Indented("", predictSetting(in, p), columns), report.Indented("", regime, columns))
	b.WriteString(a.figuresTable(in).Fit(columns))
	if sentence := dominantSentence(p); sentence != "" {
		if where, _, cut := strings.Cut(sentence, ": "); cut && a.Target != nil { // whose mean no lever moves
			sentence = where + "."
		}
		b.WriteString("\n" + report.Indented("", sentence, columns))
	}
	if a.Target != nil {
		b.WriteString("\n" + a.Target.table().Fit(columns))
	}
	if levers := a.leversText(columns); levers != "" {
		b.WriteString("\n" + levers)
	}
	for i, warning := range p.Warnings {
		if i == 0 {
			fmt.Fprintf(&b, "\nWarnings\n")
		}
		b.WriteString(report.Indented("  - ", warning, columns))
	}
	return b.String()
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

// figuresTable has staleness and period, each by the published and the corrected closed form, or simulated.
func (a Answer) figuresTable(in theory.Input) report.Table {
	p, decimals := a.Prediction, 2
	t := report.Table{Header: []string{"Staleness, versions", "published", "corrected"}}
	if !p.Smooth {
		decimals = 0 // further digits would pretend to know
	}
	if a.Simulated != nil {
		t.Header, decimals = []string{"Staleness, versions", "simulated"}, 2
	}
	row := func(name string, cells ...string) {
		t.Rows = append(t.Rows, append([]string{name}, cells[:min(len(cells), len(t.Header)-1)]...))
	}
	both := func(name string, published, corrected theory.Figure, decimals int) {
		row("  "+name, published.Format(decimals), corrected.Format(decimals))
	}
	last := func(name, text string) { // what stands in the last column alone
		cells := []string{"", text}
		row("  "+name, cells[3-len(t.Header):]...)
	}
	both("pre-queue (PQS)", p.PQS, p.Corrected.PQS, decimals)
	both("in-queue (IQS)", p.IQS, p.Corrected.IQS, decimals)
	both("mean", p.Staleness.Mean, p.Corrected.Mean, decimals)
	if a.Simulated != nil && a.Simulated.StalenessMean95 != nil {
		between := a.Simulated.StalenessMean95
		last("its 95 % interval", fmt.Sprintf("%.*f to %.*f", decimals, between[0], decimals, between[1]))
	}
	last("p50 · p95 · p99", fmt.Sprintf("%s · %s · %s", p.Staleness.P50.Format(0), p.Staleness.P95.Format(0), p.Staleness.P99.Format(0)))
	if share, known := p.Staleness.ShareAboveBudget.Value(); known {
		last(fmt.Sprintf("share above %d", in.BudgetVersions), fmt.Sprintf("%.2g %%", 100*share))
	}
	row("  mean over tokens", p.TokenStaleness.Format(decimals))
	row("Period between updates")
	both("over the train step", p.Period.RelativeToStep, p.Corrected.Period.RelativeToStep, 3)
	if _, known := p.Period.S.Value(); known {
		both("seconds", p.Period.S, p.Corrected.Period.S, 2)
	}
	return t
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

// leversTable has what single changes would buy.
func (a Answer) leversTable() report.Table {
	t := report.Table{Header: []string{"Levers", "staleness", "corrected", "period ×"}}
	switch {
	case a.Target != nil:
		return a.Target.leversTable(a.Levers)
	case a.Simulated != nil:
		t.Header = []string{"Levers, simulated", "staleness", "period ×"}
	}
	for _, l := range a.Levers {
		row := []string{"  " + l.Change, l.StalenessMean.Format(2)}
		if a.Simulated == nil {
			row = append(row, l.CorrectedMean.Format(2))
		}
		t.Rows = append(t.Rows, append(row, l.PeriodRatio.Format(2)))
	}
	return t
}

// leversText has what single changes would buy, and below it what each of them holds fixed, since that decides
// its sign.
func (a Answer) leversText(columns int) string {
	if len(a.Levers) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString(a.leversTable().Fit(columns))
	b.WriteString(a.Target.leversNotes(columns))
	last := ""
	for _, lever := range a.Levers {
		if lever.Name == last {
			continue
		}
		last = lever.Name
		b.WriteString(report.Indented("  ", fmt.Sprintf("%s holds fixed: %s.", lever.Name, lever.HoldsFixed), columns))
		if lever.Note != "" {
			b.WriteString(report.Indented("    ", lever.Note, columns))
		}
	}
	return b.String()
}
