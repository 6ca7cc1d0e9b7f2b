package plan

import (
	"fmt"
	"strings"

	"github.com/headway-rl/headway/observe/report"
)

// figuresTable sets both answers of the recommended setting side by side.
func (p *Plan) figuresTable() report.Table {
	c := &p.Recommended
	table := report.Table{Title: "Expected", Header: []string{"", "closed form", "simulated", "95 % interval"}}
	row := func(name string, of func(*Figures) string, interval string) {
		cells := []string{name, "–", "–", interval}
		if c.Predicted != nil {
			cells[1] = of(c.Predicted)
		}
		if c.Simulated != nil {
			cells[2] = of(&c.Simulated.Figures)
		}
		table.Rows = append(table.Rows, cells)
	}
	staleness, period := "", ""
	if s := c.Simulated; s != nil {
		staleness, period = span(s.StalenessMean95, 3), span(s.PeriodS95, 2)
	}
	row("staleness, mean", func(f *Figures) string { return report.Figure(f.StalenessMean, 3) }, staleness)
	row("staleness, p50 · p95 · p99", func(f *Figures) string {
		return fmt.Sprintf("%d · %d · %d", f.StalenessP50, f.StalenessP95, f.StalenessP99)
	}, "")
	row("utilization ρ", func(f *Figures) string { return report.Figure(f.Utilization, 2) }, "")
	row("update every, s (t)", func(f *Figures) string { return report.Figure(f.PeriodS, 2) }, period)
	row("a rollout, ms (t/B)", func(f *Figures) string { return report.Figure(1e3*f.PerRolloutS, 2) }, "")
	row("noise-adjusted, s (t/√B · t/√B_eff)", func(f *Figures) string {
		return report.Figure(f.PerRootS, 3) + " · " + report.Figure(f.UpdateS, 3)
	}, "")
	if c.Best().ClipFraction > 0 {
		row("clip fraction", func(f *Figures) string { return report.Share(f.ClipFraction) }, "")
	}
	row("groups dropped", func(f *Figures) string { return report.Share(f.WasteShare) }, "")
	row("length bias", func(f *Figures) string { return report.Share(f.LengthBias) }, "")
	if p.priced() {
		row("cost of a step, "+p.Prices.Currency, func(f *Figures) string { return report.Figure(f.CostPerStep, 3) }, "")
		row("cost of a million trained tokens", func(f *Figures) string { return report.Figure(f.CostPerMillionTokens, 3) }, "")
	}
	return table
}

// settingTable lists what to set.
func (p *Plan) settingTable() report.Table {
	c := &p.Recommended
	table := report.Table{Title: "Settings", Header: []string{"key", "value"}}
	add := func(key, value string) { table.Rows = append(table.Rows, []string{key, value}) }
	add("hardware.rollout_gpus", fmt.Sprint(c.RolloutGPUs))
	add("hardware.train_gpus", fmt.Sprint(c.TrainGPUs))
	for _, o := range c.overrides() {
		switch {
		case o.value == "null", strings.HasPrefix(o.key, "hardware."):
		case o.key == "queue":
			add("queue.policy", c.Policy)
		default:
			add(o.key, o.value)
		}
	}
	return table
}

// alternativesTable sets the alternatives beside the recommended setting.
func (p *Plan) alternativesTable() report.Table {
	table := report.Table{Header: []string{"", "GPUs", "batch", "rule", "q", "slots", "staleness", "p95", "update, s", "cost of a step"}}
	row := func(name string, c *Candidate) {
		f := c.Best()
		table.Rows = append(table.Rows, []string{name, fmt.Sprintf("%d + %d", c.RolloutGPUs, c.TrainGPUs), fmt.Sprint(c.BatchRollouts), c.Rule(), c.queueText(), fmt.Sprint(c.SlotsPerReplica),
			report.Figure(f.StalenessMean, 2), fmt.Sprint(f.StalenessP95), report.Figure(f.UpdateS, 3), report.Figure(f.CostPerStep, 2)})
	}
	row("recommended", &p.Recommended)
	for i := range p.Alternatives {
		row(p.Alternatives[i].Name, &p.Alternatives[i].Candidate)
	}
	return table
}

// queueText is the queue factor, where the setting has one of its own.
func (s Setting) queueText() string {
	if s.QueueFactor == 0 {
		return "–"
	}
	return plain(s.QueueFactor)
}

// alternativesText says what each gives and costs.
func (p *Plan) alternativesText() []string {
	var list []string
	for _, a := range p.Alternatives {
		list = append(list, fmt.Sprintf("%s: %s.", a.Name, a.Text))
	}
	return list
}

// bindingFull lists every constraint with what relaxing it would lead to.
func (p *Plan) bindingFull() report.Table {
	table := report.Table{Title: p.bindingTitle(), Header: []string{"constraint", "relaxed", "update", "it would then be"}}
	for _, c := range p.Binding {
		effect := "does not bind"
		if c.Binds {
			effect = fmt.Sprintf("-%.1f %%", 100*(1-c.ObjectiveRatio))
		}
		table.Rows = append(table.Rows, []string{c.Bound, c.Relaxed, effect, c.To})
	}
	return table
}

// bindingTitle says whose constraints they are: settings that a closed form covers
// are ranked again, whatever the rule of the recommended one.
func (p *Plan) bindingTitle() string {
	if p.Recommended.Predicted == nil {
		return "What binds settings with a closed form, not the recommended rule"
	}
	return "What binds (closed form)"
}

// leversFull lists every lever with what it holds fixed.
func (p *Plan) leversFull() report.Table {
	table := report.Table{Title: "Single changes of the recommended setting", Header: []string{"change", "staleness", "p95", "period ×", "update ×", "cost ×", "budget"}}
	for _, l := range p.Levers {
		table.Rows = append(table.Rows, []string{l.Change, report.Figure(l.StalenessMean, 2), fmt.Sprint(l.StalenessP95), report.Figure(l.PeriodRatio, 2), report.Figure(l.UpdateRatio, 2), report.Figure(l.CostRatio, 2), l.keeping()})
	}
	if len(p.Levers) > 0 {
		table.Title += ", " + p.Levers[0].Basis
	}
	return table
}

// adviceText are the verdicts.
func (p *Plan) adviceText() []string {
	var list []string
	if p.Async.Text != "" {
		list = append(list, p.Async.Text)
	}
	if p.Hosted != nil {
		list = append(list, p.Hosted.Text)
	}
	return append(list, p.modeText())
}

// modeText is the advice on verl's modes.
func (p *Plan) modeText() string {
	return fmt.Sprintf("Of verl's modes, number %d, %s (%s): %s.", p.Mode.Number, p.Mode.Name, p.Mode.Settings, p.Mode.Why)
}

// findingsText lists the rules of thumb.
func (p *Plan) findingsText() []string {
	var list []string
	for _, f := range p.Findings {
		verdict := "holds"
		if !f.Holds {
			verdict = "fails here"
		}
		list = append(list, fmt.Sprintf("%s: %s. %s. It fails %s.", report.Capital(f.Rule), verdict, report.Capital(f.Evidence), f.Fails))
	}
	return list
}

// leversHold says what each kind of lever holds fixed.
func (p *Plan) leversHold() []string {
	var list []string
	last := ""
	for _, l := range p.Levers {
		if l.Name != last {
			text := strings.ReplaceAll(l.Name, "_", " ") + " holds fixed: " + l.HoldsFixed
			if l.Note != "" {
				text += "; " + l.Note
			}
			list = append(list, text+".")
		}
		last = l.Name
	}
	return list
}

// foundationsText says what the figures rest on.
func (p *Plan) foundationsText() []string {
	s, a := &p.Searched, &p.Accuracy
	list := []string{fmt.Sprintf("%s settings ranked, %s of them by closed form; %d simulated.", report.Count(int64(s.Settings)), report.Count(int64(s.Predicted)), s.Simulated)}
	for _, r := range s.Uncovered {
		list = append(list, fmt.Sprintf("%s settings were left out: %s.", report.Count(int64(r.Settings)), r.Reason))
	}
	if a.Finalists > 0 {
		list = append(list, fmt.Sprintf("Closed form against simulation on %d finalists: staleness off by %s on average, %s at most; period by %s and %s; p95 exact in %d, within one version in %d. By regime: %s; this plan is %s.",
			a.Finalists, report.Share(a.StalenessMeanError), report.Share(a.StalenessMaxError), report.Share(a.PeriodMeanError), report.Share(a.PeriodMaxError), a.P95Exact, a.P95Near, a.Source, a.Regime))
	}
	return list
}
