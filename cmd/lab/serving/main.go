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
	"os"
	"slices"
	"strings"

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
	answers := serving.Answers(rows)
	if runs != "" {
		others, err := table(runs)
		if err != nil {
			return err
		}
		for _, row := range others {
			if row["family"] != "routing" {
				continue
			}
			a, err := serving.Rollouts(row)
			if err != nil {
				a = serving.Answer{ID: row["id"], Reason: err.Error()}
			}
			rows, answers = append(rows, row), append(answers, a)
		}
	}
	byFigure, every, refused := serving.Compare(rows, answers).Tables()
	for _, t := range [][][]string{every, refused, byFigure} {
		markdown(out, t)
	}
	return nil
}

// markdown prints rows as a table, the first one as its header.
func markdown(out io.Writer, rows [][]string) {
	for i, row := range rows {
		fmt.Fprintln(out, "| "+strings.Join(row, " | ")+" |")
		if i == 0 {
			fmt.Fprintln(out, strings.Repeat("|---", len(row))+"|")
		}
	}
	fmt.Fprintln(out)
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

// median sorts values, of which there is one at least, and returns the middle.
func median(values []float64) float64 {
	slices.Sort(values)
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
}
