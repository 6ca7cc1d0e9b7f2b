package study

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/observe/report"
)

// Contestant is one arm of a contest: keys that are set over the common ones.
type Contestant struct {
	// Name of the arm; Note says in a sentence what it stands for.
	Name, Note string
	// Set are its keys, KEY=VALUE.
	Set []string
}

// Contest is a comparison of live runs on one task, from the same seeds and for
// the same wall time.
type Contest struct {
	// Name is short, for files; Title and Summary are for the page.
	Name, Title, Summary string
	// Common are the keys of all arms, KEY=VALUE.
	Common []string
	// Arms in order; the first is what others are compared with.
	Arms []Contestant
	// Seeds of every arm.
	Seeds []uint64
	// WallS is the wall time of every run in seconds.
	WallS float64
}

// Lived is what one run came to.
type Lived struct {
	report.ArmRun
	// StalenessP50 in versions; TokenStaleness the mean over trained tokens.
	StalenessP50, TokenStaleness float64
	// MeanLogRatio in nats and EffectiveSample, ESS/N, are means over the train steps.
	MeanLogRatio, EffectiveSample float64
}

// Live runs a document from its start for so many seconds of wall time and says
// what came of it. A run that ends before its time is a result, with Failed set;
// an error ends the contest.
type Live func(ctx context.Context, document config.Config, wallS float64) (Lived, error)

// Contested is a contest with its runs.
type Contested struct {
	Contest Contest
	// Runs by arm and seed, in the contest's order.
	Runs [][]Lived
}

// Documents resolves every arm's document, so that a mistake in one is known
// before anything runs.
func (c Contest) Documents() ([]config.Config, error) {
	documents := make([]config.Config, len(c.Arms))
	for i, arm := range c.Arms {
		var overrides []config.Override
		for _, text := range append(append([]string{}, c.Common...), arm.Set...) {
			overrides = append(overrides, config.Override{Text: text})
		}
		document, err := config.LoadWith("", overrides...)
		if err != nil {
			return nil, fmt.Errorf("study: arm %s: %w", arm.Name, err)
		}
		documents[i] = document
	}
	return documents, nil
}

// Play makes the runs, one at a time: all arms with the first seed, then all with the next. Each seed
// begins with another arm, so that any change of the machine meanwhile is spread over them. If said
// is not nil, Play calls it before every run.
func (c Contest) Play(ctx context.Context, live Live, said func(done, all int, arm string, seed uint64)) (Contested, error) {
	played := Contested{Contest: c, Runs: make([][]Lived, len(c.Arms))}
	documents, err := c.Documents()
	if err != nil {
		return played, err
	}
	for i := range c.Arms {
		played.Runs[i] = make([]Lived, len(c.Seeds))
	}
	done := 0
	for k, seed := range c.Seeds {
		for i := range c.Arms {
			arm := (i + k) % len(c.Arms)
			if said != nil {
				said(done, len(c.Seeds)*len(c.Arms), c.Arms[arm].Name, seed)
			}
			document := documents[arm]
			document.Seed = seed
			run, err := live(ctx, document, c.WallS)
			if err != nil {
				return played, fmt.Errorf("study: arm %s, seed %d: %w", c.Arms[arm].Name, seed, err)
			}
			run.Seed = seed
			played.Runs[arm][k] = run
			done++
		}
	}
	return played, nil
}

// Arms is the contest as a comparison for package report.
func (p Contested) Arms(from Provenance) report.Arms {
	c := p.Contest
	arms := report.Arms{Title: c.Title, Summary: c.Summary, WallS: c.WallS, Settings: rows(c.Common), Notes: []string{
		"Evaluation takes no run's time: every version is kept, and held-out accuracy is measured after the run has ended, of the versions it had reached by then. The accuracy of the end is that of the newest version at the common wall time.",
		"Arms take turns seed by seed, each round beginning with another one, so that changes of the machine are spread over them.",
		from.line(),
	}}
	for i, a := range c.Arms {
		arm := report.Arm{Name: a.Name, Note: a.Note, Settings: rows(a.Set)}
		for _, run := range p.Runs[i] {
			arm.Runs = append(arm.Runs, run.ArmRun)
		}
		arms.Arms = append(arms.Arms, arm)
	}
	return arms
}

// rows are keys as rows.
func rows(set []string) []report.Row {
	var all []report.Row
	for _, text := range set {
		key, value, _ := strings.Cut(text, "=")
		all = append(all, report.Row{Name: key, Value: value})
	}
	return all
}

// figures are what the comparison has beside report's own, by arm.
func (p Contested) figures() []armFigures {
	var all []armFigures
	for i, arm := range p.Contest.Arms {
		over := func(of func(Lived) float64) Estimate {
			var values []float64
			for _, run := range p.Runs[i] {
				if v := of(run); run.Failed == "" && !math.IsNaN(v) {
					values = append(values, v)
				}
			}
			return estimateOf(values)
		}
		all = append(all, armFigures{
			Name:           arm.Name,
			StalenessP50:   over(func(l Lived) float64 { return l.StalenessP50 }),
			TokenStaleness: over(func(l Lived) float64 { return l.TokenStaleness }),
			MeanLogRatio:   over(func(l Lived) float64 { return l.MeanLogRatio }), EffectiveSample: over(func(l Lived) float64 { return l.EffectiveSample }),
		})
	}
	return all
}

type armFigures struct {
	Name            string   `json:"name"`
	StalenessP50    Estimate `json:"staleness_p50"`
	TokenStaleness  Estimate `json:"token_staleness_mean"`
	MeanLogRatio    Estimate `json:"mean_log_ratio"`
	EffectiveSample Estimate `json:"effective_sample_size"`
}

// figuresTable prints them.
func (p Contested) figuresTable() report.Table {
	t := report.Table{Title: "Also", Header: []string{"arm", "staleness p50", "token staleness", "mean log-ratio", "effective sample size"}}
	for _, f := range p.figures() {
		t.Rows = append(t.Rows, []string{f.Name, f.StalenessP50.print(1), f.TokenStaleness.print(2), f.MeanLogRatio.print(4), f.EffectiveSample.print(3)})
	}
	return t
}

// WriteText prints the contest for a terminal.
func (p Contested) WriteText(w io.Writer, from Provenance) error {
	if err := report.ArmsText(w, p.Arms(from)); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s", p.figuresTable())
	return err
}

// WriteHTML prints the contest as one page that needs nothing else.
func (p Contested) WriteHTML(w io.Writer, from Provenance) error {
	return report.ArmsHTML(w, p.Arms(from))
}

// MarshalJSON is the contest as one document: report's comparison, and the fields beside it.
func (p Contested) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Name       string            `json:"name"`
		Comparison report.ArmsResult `json:"comparison"`
		Also       []armFigures      `json:"also"`
	}{p.Contest.Name, report.Compare(p.Arms(Provenance{})), p.figures()})
}

// Markdown prints the contest as a section of a document.
func (p Contested) Markdown(w io.Writer, from Provenance) error {
	var text strings.Builder
	if err := p.WriteText(&text, from); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "## %s\n\n```\n%s```\n\n", p.Contest.Title, text.String())
	return err
}
