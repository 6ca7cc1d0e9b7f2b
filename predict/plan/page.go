package plan

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/observe/report"
)

//go:embed explorer.html.tmpl
var explorerText string

//go:embed explorer.js
var explorerScript string

// policy is what the report's pages allow themselves; ours allows its own script,
// by its hash, and no other.
const policy = "default-src 'none'; style-src 'unsafe-inline'"

// allowed returns a page that may run the explorer's script.
func allowed(page []byte) ([]byte, error) {
	sum := sha256.Sum256([]byte(explorerScript))
	widened := policy + "; script-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	if !bytes.Contains(page, []byte(policy)) {
		return nil, errors.New("plan: page: the report's page has another security policy than this expects")
	}
	return bytes.Replace(page, []byte(policy), []byte(widened), 1), nil
}

// explorer is the part of the page in which settings are explored.
var explorer = template.Must(template.New("explorer").Parse(explorerText))

// HTML writes the plan as one file that needs nothing else: the frontier to
// explore, and the terminal's output.
func (p *Plan) HTML(w io.Writer) error {
	drawing, err := p.explorer()
	if err != nil {
		return err
	}
	c, f := &p.Recommended, p.Recommended.Best()
	headline := []report.Row{
		{Name: "split", Value: fmt.Sprintf("%d + %d", c.RolloutGPUs, c.TrainGPUs), Note: "rollout + train GPUs"},
		{Name: "batch", Value: fmt.Sprint(c.BatchRollouts), Note: c.Rule()},
		{Name: "staleness", Value: report.Figure(f.StalenessMean, 2), Note: fmt.Sprintf("mean, p95 %d", f.StalenessP95)},
		{Name: "update every", Value: report.Figure(f.PeriodS, 1) + " s", Note: fmt.Sprintf("noise-adjusted %s s", report.Figure(f.UpdateS, 3))},
	}
	if p.priced() {
		headline = append(headline, report.Row{Name: "cost", Value: report.Figure(f.CostPerStep, 3), Note: p.Prices.Currency + " a step, " + report.Figure(f.CostPerMillionTokens, 3) + " a million trained tokens"})
	}
	var warnings []string
	if !p.Met {
		warnings = append(warnings, "No setting keeps the budget; what is recommended comes closest.")
	}
	if p.Assumed != "" {
		warnings = append(warnings, report.Capital(p.Assumed)+".")
	}
	for _, short := range p.Shortfall {
		warnings = append(warnings, short.Text)
	}
	for _, w := range p.Warnings {
		warnings = append(warnings, report.Capital(w)+".")
	}
	d := report.Document{Title: "Plan", Summary: p.summary(), Warnings: warnings, Headline: headline,
		Sections: []report.Section{
			{ID: "recommended", Title: "Recommended", Text: p.Why, Tables: []report.Table{p.figuresTable(), p.settingTable()}},
			{ID: "questions", Title: "Questions", Findings: p.answersText()},
			{ID: "frontier", Title: "The frontier", Text: []string{"Every mark is a setting; those lower left are better. Blue: ranked by closed form. The line joins those that nothing beats in both staleness and time. Rings: simulated."},
				Drawings: []report.Drawing{{Title: "Settings by staleness and time of an update", SVG: drawing, Wide: true}}},
			{ID: "alternatives", Title: "Alternatives", Findings: p.alternativesText(), Tables: []report.Table{p.alternativesTable()}},
			{ID: "binding", Title: "What binds, and what levers would buy", Tables: []report.Table{p.bindingFull(), p.leversFull()}, Details: p.leversHold()},
			{ID: "advice", Title: "Does asynchrony pay, and rules of thumb", Text: p.adviceText(), Findings: p.findingsText()},
			{ID: "foundations", Title: "What this rests on", Text: p.foundationsText(), Findings: p.Machine.Notes},
		},
	}
	var page bytes.Buffer
	if err := report.DocumentHTML(&page, d); err != nil {
		return err
	}
	text, err := allowed(page.Bytes())
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}

// summary is what was planned, in a sentence.
func (p *Plan) summary() string {
	return fmt.Sprintf("%s, responses of %.0f tokens on average and %d at most, groups of %d; budget: %s.", p.machine(), p.Workload.MeanTokens, p.Workload.CapTokens, p.Workload.GroupSize, p.budgetText())
}

// machine is the model and the GPUs.
func (p *Plan) machine() string {
	m := &p.Machine
	what := fmt.Sprintf("%d GPUs", m.GPUs)
	if m.GPU != "" {
		what = fmt.Sprintf("%d × %s", m.GPUs, m.GPU)
	}
	if m.Model != "" {
		what = m.Model + " on " + what
	}
	return what
}

// mark is one setting of the explorer; its fields are short, since there are many.
type mark struct {
	Staleness float64 `json:"s"`
	P95       int     `json:"p"`
	UpdateS   float64 `json:"u"`
	PeriodS   float64 `json:"t"`
	Rho       float64 `json:"r"`
	Waste     float64 `json:"w"`
	Cost      float64 `json:"c"`
	Rollout   int     `json:"R"`
	Train     int     `json:"T"`
	Batch     int     `json:"B"`
	Queue     float64 `json:"q"`
	Slots     int     `json:"n"`
	Sync      int     `json:"k"`
	Rule      string  `json:"x"`
	// Kind is 0 for ranked, 1 for the frontier, 2 for simulated, 3 for the recommended.
	Kind int `json:"y"`
	// Kept says that the budget is, by the tolerance of the plan itself.
	Kept bool `json:"b"`
}

// markOf is a candidate's mark.
func markOf(budget *config.Budget, c *Candidate, kind int) mark {
	f := c.Best()
	over, _ := excess(budget, &f)
	return mark{round6(f.StalenessMean), f.StalenessP95, round6(f.UpdateS), round6(f.PeriodS), round6(f.Utilization), round6(f.WasteShare), round6(f.CostPerStep),
		c.RolloutGPUs, c.TrainGPUs, c.BatchRollouts, c.QueueFactor, c.SlotsPerReplica, c.SyncEvery, c.Rule(), kind, over == 0}
}

// explorer renders the settings to explore.
func (p *Plan) explorer() (string, error) {
	var marks []mark
	for i := range p.cloud {
		marks = append(marks, markOf(&p.Budget, &p.cloud[i], 0))
	}
	for i := range p.Frontier {
		marks = append(marks, markOf(&p.Budget, &p.Frontier[i], 1))
	}
	for i := range p.Finalists {
		if p.Finalists[i].Simulated != nil && p.Finalists[i].Setting != p.Recommended.Setting {
			marks = append(marks, markOf(&p.Budget, &p.Finalists[i], 2))
		}
	}
	marks = append(marks, markOf(&p.Budget, &p.Recommended, 3))
	data, err := json.Marshal(map[string]any{"marks": marks, "budget": p.Budget.StalenessMean, "budgetP95": p.Budget.StalenessP95, "currency": p.Prices.Currency, "priced": p.priced()})
	if err != nil {
		return "", fmt.Errorf("plan: page: %w", err)
	}
	var text bytes.Buffer
	// The data is our own JSON, whose encoder escapes what could end the script.
	if err := explorer.Execute(&text, map[string]any{"Data": template.JS(data), "Script": template.JS(explorerScript)}); err != nil {
		return "", fmt.Errorf("plan: page: %w", err)
	}
	return text.String(), nil
}
