// Command serving predicts every row of a table of serving measurements. It prints the figures beside the measured ones,
// as Markdown, with the median error of each kind of figure.
//
// Usage: go run ./cmd/lab/serving [-runs published_runs.csv] serving.csv
//
// -runs adds the rows of the family routing of a table of published runs. With -silicon the table is
// silicon_sample.csv of aiconfigurator, and only medians of its aggregated rows are printed, by model, GPU and engine.
package main

import (
	"encoding/csv"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"

	"github.com/headway-rl/headway/predict/serving"
)

func main() {
	runs := flag.String("runs", "", "a table of published runs, for its rows of routing")
	silicon := flag.Bool("silicon", false, "the table is silicon_sample.csv of aiconfigurator")
	flag.Parse()
	answer := func() error { return run(os.Stdout, flag.Arg(0), *runs) }
	if *silicon {
		answer = func() error { return sample(os.Stdout, flag.Arg(0)) }
	}
	if err := answer(); err != nil {
		fmt.Fprintln(os.Stderr, "serving:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, cases, runs string) error {
	rows, err := table(cases)
	if err != nil {
		return err
	}
	page := &page{out: out, errors: map[string][]float64{}}
	page.head()
	for i, a := range serving.Answers(rows) {
		page.row(rows[i], a)
	}
	if runs != "" {
		if rows, err = table(runs); err != nil {
			return err
		}
		for _, row := range rows {
			if row["family"] != "routing" {
				continue
			}
			a, err := serving.Rollouts(row)
			if err != nil {
				a = serving.Answer{ID: row["id"], Reason: err.Error()}
			}
			page.row(row, a)
		}
	}
	page.medians()
	return nil
}

// table reads a file of comma-separated values with lines of comments before its header.
func table(path string) ([]map[string]string, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	lines := csv.NewReader(file)
	lines.Comment = '#'
	all, err := lines.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var rows []map[string]string
	for _, fields := range all[min(1, len(all)):] {
		row := map[string]string{}
		for i, column := range all[0] {
			row[column] = fields[i]
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// figure is one kind of measurement.
type figure struct {
	column, name string
	of           func(serving.Answer) *float64
}

var figures = []figure{
	{"m_ttft_ms", "first token, ms", func(a serving.Answer) *float64 { return a.TTFTMS }},
	{"m_tpot_ms", "each token, ms", func(a serving.Answer) *float64 { return a.TPOTMS }},
	{"m_output_tokens_per_s", "output tokens/s", func(a serving.Answer) *float64 { return a.OutputTokensPerS }},
	{"m_requests_per_s", "requests/s", func(a serving.Answer) *float64 { return a.RequestsPerS }},
	{"m_latency_s", "latency, s", func(a serving.Answer) *float64 { return a.LatencyS }},
	{"m_gen_s", "generation, s", func(a serving.Answer) *float64 { return a.SpanS }},
	{"m_prefix_hit", "prompt found", func(a serving.Answer) *float64 { return a.PrefixHit }},
}

// page prints rows and keeps their errors.
type page struct {
	out    io.Writer
	errors map[string][]float64
}

func (p *page) head() {
	fmt.Fprintln(p.out, "| row | figure | measured | predicted | error |\n|---|---|---:|---:|---:|")
}

// row prints what a row has measured.
func (p *page) row(row map[string]string, a serving.Answer) {
	if a.Reason != "" {
		fmt.Fprintf(p.out, "| %s | – | | | %s |\n", row["id"], a.Reason)
		return
	}
	for _, f := range figures {
		measured, err := strconv.ParseFloat(row[f.column], 64)
		got := f.of(a)
		if err != nil || got == nil || measured <= 0 {
			continue
		}
		off := *got/measured - 1
		p.errors[f.name] = append(p.errors[f.name], math.Abs(off))
		fmt.Fprintf(p.out, "| %s | %s | %.4g | %.4g | %+.0f %% |\n", row["id"], f.name, measured, *got, 100*off)
	}
}

// medians prints the median of each figure's errors.
func (p *page) medians() {
	fmt.Fprintln(p.out, "\n| figure | rows | median error | worst |\n|---|---:|---:|---:|")
	for _, f := range figures {
		if all := p.errors[f.name]; len(all) > 0 {
			fmt.Fprintf(p.out, "| %s | %d | %.0f %% | %.0f %% |\n", f.name, len(all), 100*median(all), 100*slices.Max(all))
		}
	}
}

// median sorts values, of which there is one at least, and returns the middle.
func median(values []float64) float64 {
	slices.Sort(values)
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
}
