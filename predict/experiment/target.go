package experiment

import (
	"fmt"
	"math"
	"strings"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/control"
	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/observe/report"
	"github.com/headway-rl/headway/predict/theory"
)

// TargetAnswer is what a simulation expects of a document's target.
type TargetAnswer struct {
	// Control is how the target was kept in the simulation, after its warm-up, and where its settings came to.
	*metrics.Control
	// Says is that in a sentence, with what to do where the target is not held.
	Says string `json:"says"`
	// Without is the same document without its target; null where it could not be simulated.
	Without *TargetWithout `json:"without"`
	// Levers are those of the prediction, in the same order, by what they change under the target.
	Levers []TargetLever `json:"levers"`
}

// TargetWithout is a document without its target.
type TargetWithout struct {
	// StalenessMean is in versions. PeriodRatio is the time between updates without over with the target.
	// ThroughputRatio is the rollouts trained a second with over without it: how much faster the run would be.
	StalenessMean   float64 `json:"staleness_mean"`
	PeriodRatio     float64 `json:"period_ratio"`
	ThroughputRatio float64 `json:"throughput_ratio"`
}

// TargetLever is what a change does to a document whose controller keeps its staleness.
type TargetLever struct {
	Change string `json:"change"`
	// ThroughputRatio is rollouts trained a second after over before, HeldShare the share of train steps that hold the
	// target then. Both are null where the change could not be simulated.
	ThroughputRatio *float64 `json:"throughput_ratio"`
	HeldShare       *float64 `json:"held_share"`
}

// answerTarget says how a simulation kept its target; nil without one.
func answerTarget(c *metrics.Control) *TargetAnswer {
	if !control.Has(c) {
		return nil
	}
	return &TargetAnswer{Control: c, Says: control.GoalOf(c).Sentence(control.StatusOf(c)), Levers: []TargetLever{}}
}

// price simulates the document without its target.
func (a *TargetAnswer) price(d config.Config, setting theory.Input, with metrics.Summary) {
	d.Control = config.Control{}
	d.Steps.Measured = min(max(leverRollouts/d.Train.Batch, answerStepsMin), answerStepsMax)
	d.Steps.Warmup = min(d.Steps.Warmup, d.Steps.Measured)
	cfg, err := Devices(Case{Document: d, Setting: setting})
	if err != nil {
		return
	}
	without, err := sim.Run(cfg)
	if err != nil || with.PeriodS.Mean <= 0 {
		return
	}
	a.Without = &TargetWithout{StalenessMean: without.Summary.Staleness.Mean, PeriodRatio: without.Summary.PeriodS.Mean / with.PeriodS.Mean,
		ThroughputRatio: throughputRatio(without.Summary, with)}
}

// dearTarget is from which throughput without a target, over that with it, the target is what binds.
const dearTarget = 1.1

// bindsThroughput reports whether a run would be clearly faster without its target.
func (a *TargetAnswer) bindsThroughput() bool {
	return a != nil && a.Without != nil && a.Without.ThroughputRatio >= dearTarget
}

// throughputRatio is rollouts trained a second over those of another run.
func throughputRatio(s, base metrics.Summary) float64 {
	if base.Throughput.ConsumptionRolloutsPerWallS <= 0 {
		return 0
	}
	return s.Throughput.ConsumptionRolloutsPerWallS / base.Throughput.ConsumptionRolloutsPerWallS
}

// leverOf is what a simulated change does under a target; nothing is known of one that could not be simulated.
func leverOf(change string, s *metrics.Summary, base metrics.Summary) TargetLever {
	l := TargetLever{Change: change}
	if s == nil {
		return l
	}
	ratio := throughputRatio(*s, base)
	l.ThroughputRatio = &ratio
	if c := s.Control; control.Has(c) && c.Steps > 0 {
		held := float64(c.HeldSteps) / float64(c.Steps)
		l.HeldShare = &held
	}
	return l
}

// owned reports whether a lever's setting is one that the document's controller may choose itself.
func owned(d config.Config, l *theory.Lever) bool {
	if !d.Controlled() {
		return false
	}
	set, to := loop.SettingSlots, l.Setting.ConcurrencyRollouts
	switch l.Name {
	case "concurrency":
	case "queue factor":
		set, to = loop.SettingQueue, l.Setting.QueueFactor*float64(d.BatchGroups())
	default:
		return false
	}
	for _, r := range d.ControlRanges() {
		if r.Setting == set {
			return r.Moves() && r.Least <= to && to <= r.Most
		}
	}
	return false
}

// targetLevers are a laxer target and a stricter one. Where the target was out of reach, the laxer one is what was reached.
func targetLevers(d config.Config, kept *metrics.Control) (levers []theory.Lever, documents []config.Config) {
	levers = []theory.Lever{}
	if !d.Controlled() {
		return levers, nil
	}
	for _, lax := range []bool{true, false} {
		t := d.Control.Target
		if t.StalenessMean > 0 {
			t.StalenessMean *= map[bool]float64{true: 2, false: 0.5}[lax]
		}
		if t.Share > 0 && lax {
			t.Within++
		} else if t.Share > 0 {
			t.Within = max(t.Within-1, 0)
		}
		if lax && control.Has(kept) && kept.State == control.Unreachable && t.StalenessMean > 0 {
			t.StalenessMean = max(t.StalenessMean, nextTo(kept.MeasuredMean))
		}
		if t == d.Control.Target {
			continue
		}
		changed := d
		changed.Control.Target = t
		levers = append(levers, theory.Lever{Name: "target", Change: "target " + targetText(d.Control.Target) + " → " + targetText(t), HoldsFixed: "everything else"})
		documents = append(documents, changed)
	}
	return levers, documents
}

// nextTo is a target a little above what was reached, with two digits.
func nextTo(reached float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(max(reached, 1e-3)))-1)
	return math.Ceil(1.03*reached/unit) * unit
}

// targetText are a target in few words.
func targetText(t config.Target) string {
	var parts []string
	if t.StalenessMean > 0 {
		parts = append(parts, fmt.Sprintf("%.4g versions", t.StalenessMean))
	}
	if t.Share > 0 {
		parts = append(parts, fmt.Sprintf("%s within %d", control.Percent(t.Share), t.Within))
	}
	return strings.Join(parts, ", ")
}

// table says how the target was kept.
func (a *TargetAnswer) table() report.Table {
	t := report.Table{Header: []string{"The target, simulated", fmt.Sprintf("%s, over %d train steps", control.GoalOf(a.Control), a.Window)}}
	row := func(name, value string) { t.Rows = append(t.Rows, []string{"  " + name, value}) }
	if a.Steps > 0 {
		row("held", fmt.Sprintf("in %s of %s train steps; single batches in %s", report.Share(float64(a.HeldSteps)/float64(a.Steps)), report.Count(a.Steps), report.Share(float64(a.HeldBatches)/float64(a.Steps))))
	} else {
		row("held", control.Held(0, 0, 0))
	}
	row("at the end", a.Says)
	for _, s := range a.Settings {
		from := "not moved"
		if s.Moves > 0 {
			from = fmt.Sprintf("from %.4g in %s", s.Start, report.Counted(s.Moves, "move"))
		}
		row(report.Plain(s.Name), fmt.Sprintf("%.4g of %.4g to %.4g, %s", s.Value, s.Least, s.Most, from))
	}
	if len(a.Settings) == 0 {
		row("settings", "none may move: control.limits leaves them where they are")
	}
	if w := a.Without; w != nil {
		row("without it", fmt.Sprintf("staleness %.2f, throughput × %.2f", w.StalenessMean, w.ThroughputRatio))
	}
	return t
}

// leversTable has what single changes do under the target.
func (a *TargetAnswer) leversTable(levers []theory.Lever) report.Table {
	t := report.Table{Header: []string{"Levers, simulated under the target", "trained/s ×", "held", "staleness", "period ×"}}
	figure := func(v *float64, print func(float64) string) string {
		if v == nil {
			return "–"
		}
		return print(*v)
	}
	for i, l := range levers {
		known := TargetLever{}
		if i < len(a.Levers) {
			known = a.Levers[i]
		}
		t.Rows = append(t.Rows, []string{"  " + l.Change, figure(known.ThroughputRatio, report.Decimals(2)), figure(known.HeldShare, report.Share), l.StalenessMean.Format(2), l.PeriodRatio.Format(2)})
	}
	return t
}

// leversNotes are what holds of all levers under a target; "" without one.
func (a *TargetAnswer) leversNotes(columns int) string {
	if a == nil {
		return ""
	}
	text := ""
	if a.Steps > 0 && 10*a.HeldSteps >= 9*a.Steps {
		text += report.Indented("  ", "Where the target is held, a lever buys throughput: the controller takes up what it frees.", columns)
	}
	if names := a.left(); names != "" {
		text += report.Indented("  ", "Left to the controller within its limits, and no levers: "+names+".", columns)
	}
	return text
}

// left names the settings that a controller moves.
func (a *TargetAnswer) left() string {
	var names []string
	for _, s := range a.Settings {
		names = append(names, fmt.Sprintf("%s (%.4g to %.4g)", report.Plain(s.Name), s.Least, s.Most))
	}
	return strings.Join(names, ", ")
}
