//go:build linux

// Command sandboxes measures the cost of sandboxes here. It measures their start, one after another
// and many at once, and the start that a pool's warm box saves. It measures a command's round trip
// and a box's memory. It also measures the throughput that is left where a tenth of the starts fail
// and a tenth of the boxes are lost in use.
//
// It makes real boxes with every driver that works on this machine. A program's result that differs
// from its expected output ends it with an error, regardless of the other faults that were injected.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/sandbox/bwrap"
	"github.com/headway-rl/headway/env/sandbox/process"
	"github.com/headway-rl/headway/env/sandbox/runsc"
)

// technology is a driver under measurement.
type technology struct {
	name string
	make func(dir string) (sandbox.Driver, error)
	// many boxes are started at once, and each is started alone as often as alone says.
	many, alone int
	// rollouts are played in a round with and without failures.
	rollouts int
}

var technologies = []technology{
	{"process", func(dir string) (sandbox.Driver, error) { return process.New(dir) }, 200, 100, 200},
	{"bwrap", func(dir string) (sandbox.Driver, error) { return bwrap.New(dir) }, 200, 100, 200},
	{"runsc", func(dir string) (sandbox.Driver, error) { return runsc.New(runsc.Options{Dir: dir}) }, 40, 20, 40},
}

// spec of the boxes: enough for a small program.
var spec = sandbox.Spec{Limits: sandbox.Limits{Memory: 128 << 20, Disk: 16 << 20, Processes: 64}}

// owner of the boxes.
const owner = "bench"

func main() {
	names := flag.String("drivers", "process,bwrap,runsc", "drivers to measure, with commas between")
	steps := flag.String("steps", "starts,many,hits,failures", "what to measure, with commas between")
	rounds := flag.Int("rounds", 5, "rounds of the throughput with and without failures, in turn")
	share := flag.Float64("share", 0.1, "share of the starts that fail, and of the boxes that are lost in use")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := measureAll(ctx, strings.Split(*names, ","), strings.Split(*steps, ","), *rounds, *share); err != nil {
		fmt.Fprintln(os.Stderr, "sandboxes:", err)
		os.Exit(1)
	}
}

func measureAll(ctx context.Context, names, steps []string, rounds int, share float64) error {
	dir, err := os.MkdirTemp("", "sandboxes")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for _, t := range technologies {
		if !slices.Contains(names, t.name) {
			continue
		}
		driver, err := t.make(dir)
		if err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		boundary, err := driver.Check(ctx)
		if err != nil {
			fmt.Printf("\n%s: not measured: %v\n", t.name, err)
			continue
		}
		fmt.Printf("\n%s (%s)\n", t.name, described(boundary))
		if err := t.measure(ctx, driver, steps, rounds, share); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
	}
	return nil
}

// described is a boundary in words.
func described(b sandbox.Boundary) string {
	if b.Secure() {
		return "a boundary"
	}
	return "no boundary"
}

// measure prints the table of one technology. At its end nothing of it may be left.
func (t technology) measure(ctx context.Context, driver sandbox.Driver, steps []string, rounds int, share float64) error {
	fmt.Printf("%-46s %10s %10s %8s\n", "", "p50 ms", "p99 ms", "n")
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"starts", func() error { return t.coldStarts(ctx, driver) }},
		{"many", func() error { return t.manyStarts(ctx, driver) }},
		{"hits", func() error { return t.poolHits(ctx, driver) }},
		{"failures", func() error { return t.throughput(ctx, driver, rounds, share) }},
	} {
		if !slices.Contains(steps, step.name) {
			continue
		}
		if err := step.do(); err != nil {
			return err
		}
	}
	left, err := driver.List(ctx, owner)
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("%d boxes are left: %v", len(left), left)
	}
	return err
}

// row prints the quantiles of times, and what else there is to say.
func row(what string, times []time.Duration, note string) {
	slices.Sort(times)
	at := func(q float64) float64 {
		return float64(times[int(q*float64(len(times)-1)+0.5)].Microseconds()) / 1000
	}
	fmt.Printf("%-46s %10.2f %10.2f %8d  %s\n", what, at(0.5), at(0.99), len(times), note)
}
