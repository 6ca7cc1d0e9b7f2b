package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/command"
	"github.com/headway-rl/headway/cmd/lab/world/program"
	"github.com/headway-rl/headway/cmd/lab/world/soak"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/observe/report"
)

// twiceCmd holds worlds to their seeds.
type twiceCmd struct {
	Seeds    string `required:"" placeholder:"A-B" help:"The seeds: 1-1000, or several ranges with commas."`
	Failures string `placeholder:"DIR" help:"The folder for the answers that differ: in the user's cache folder, unless given."`
	building
	limits
	command.Output
}

// twiceReport is what twice says with --json.
type twiceReport struct {
	// Seeds were run twice, Differing of them with answers that differ.
	Seeds     int64       `json:"seeds"`
	Differing []differing `json:"differing"`
	// Failed are those of the others that failed in the same way twice.
	Failed  []uint64 `json:"failed"`
	Program string   `json:"program"`
	TookS   float64  `json:"took_s"`
}

// differing is a seed whose two answers differ.
type differing struct {
	Seed uint64 `json:"seed"`
	// What is the first thing that differs.
	What string `json:"what"`
	// Kept are the files with both answers.
	Kept []string `json:"kept"`
}

// Run runs every seed twice.
func (c *twiceCmd) Run(a *app.Process) error {
	ctx, stop := command.Interruptible()
	defer stop()
	seeds, err := soak.Parse(c.Seeds)
	if err != nil {
		return failure.Usage("", "--seeds: %w", err)
	}
	p, err := c.open(ctx, a, c.limits)
	if err != nil {
		return err
	}
	defer p.Close()
	folder := c.Failures
	if folder == "" {
		cache, err := program.Cache()
		if err != nil {
			return err
		}
		folder = filepath.Join(cache, "twice")
	}
	r := twiceReport{Program: p.Sum, Differing: []differing{}, Failed: []uint64{}}
	if err := c.all(ctx, a, p, seeds, folder, &r); err != nil {
		return err
	}
	if c.JSON {
		if err := report.JSON(a.Stdout, r); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(a.Stdout, "%s seeds ran twice in %s: %d differ, %d failed in the same way twice\n", report.Count(r.Seeds), report.Lasting(r.TookS), len(r.Differing), len(r.Failed))
		for _, seed := range r.Failed {
			fmt.Fprintf(a.Stdout, "FAILS     seed %d, the same way twice\n", seed)
		}
		for _, d := range r.Differing {
			fmt.Fprintf(a.Stdout, "DIFFERS   seed %d: %s\n          %s\n          %s\n", d.Seed, d.What, d.Kept[0], d.Kept[1])
		}
	}
	if len(r.Differing) > 0 {
		return failure.Run("", "%s of %s had another answer when they ran again, the first is %d: its %s", report.Counted(len(r.Differing), "seed"), report.Count(r.Seeds), r.Differing[0].Seed, r.Differing[0].What)
	}
	return nil
}

// sides are the words for the two runs of a seed in the names of files.
var sides = [2]string{"first", "second"}

// both are the results of the two runs of a seed.
type both struct {
	results [2]program.Result
	// histories are the files of what the hosts saw and did.
	histories [2]string
	// what is the first thing that differs; "" for nothing.
	what string
}

// all runs the seeds, each of them twice.
func (c *twiceCmd) all(ctx context.Context, a *app.Process, p *program.Program, seeds soak.Ranges, folder string, r *twiceReport) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	line, began := command.NewStatusLine(a), a.Now()
	var trouble error
	err := soak.Each(ctx, seeds.Without(nil), c.jobs(),
		func(ctx context.Context, seed uint64) (both, error) { return twice(ctx, p, seed, folder) },
		func(seed uint64, b both) bool {
			r.Seeds++
			if b.what != "" {
				d := differing{Seed: seed, What: b.what}
				for i, side := range sides {
					_, err := soak.Keep(folder, fmt.Sprintf("seed-%d-%s", seed, side), b.results[i])
					trouble = errors.Join(trouble, err)
					d.Kept = append(d.Kept, filepath.Join(folder, fmt.Sprintf("seed-%d-%s.txt", seed, side)))
				}
				r.Differing = append(r.Differing, d)
			} else if b.results[0].Rule != "" {
				r.Failed = append(r.Failed, seed)
			}
			if line.Due() {
				line.Show(fmt.Sprintf("%s of %s seeds twice, %d differ", report.Count(r.Seeds), report.Count(seeds.Len()), len(r.Differing)))
			}
			return trouble == nil
		})
	line.Clear()
	r.TookS = a.Now().Sub(began).Seconds()
	slices.Sort(r.Failed)
	slices.SortFunc(r.Differing, func(a, b differing) int { return cmp.Compare(a.Seed, b.Seed) })
	return errors.Join(err, trouble)
}

// twice runs a seed twice. Histories that do not differ are removed.
func twice(ctx context.Context, p *program.Program, seed uint64, folder string) (b both, err error) {
	var texts [2][]byte
	for i, side := range sides {
		b.histories[i] = filepath.Join(folder, fmt.Sprintf("seed-%d-%s.ndjson", seed, side))
		if err := os.Remove(b.histories[i]); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return b, err
		}
		if b.results[i], err = p.Run(ctx, program.Job{Seed: seed, History: b.histories[i]}); err != nil {
			return b, err
		}
		if texts[i], err = os.ReadFile(b.histories[i]); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return b, err // a world that ends too early leaves none
		}
	}
	b.what = differs(b.results[0], b.results[1])
	if line := differingLine(texts[0], texts[1]); line > 0 {
		b.what = fmt.Sprintf("history, from line %d on", line)
	}
	if b.what == "" {
		for _, path := range b.histories {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return b, err
			}
		}
	}
	return b, nil
}

// differingLine is the number of the first line in which two texts differ; 0 for none.
func differingLine(a, b []byte) int {
	if bytes.Equal(a, b) {
		return 0
	}
	n := 1
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return n
		}
		if a[i] == '\n' {
			n++
		}
	}
	return n
}

// differs names what differs between two runs of a seed; "" for nothing.
func differs(a, b program.Result) string {
	if a.Rule != b.Rule || a.Answered != b.Answered {
		return fmt.Sprintf("rule (%q and %q)", a.Rule, b.Rule)
	}
	if !a.Answered {
		return "" // each ended without an answer, and by the same rule
	}
	return a.Differs(b.Outcome)
}
