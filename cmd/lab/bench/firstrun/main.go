// Command firstrun measures how well `headway run` predicts itself. It makes the default run over seeds, on one and two
// processors. The machine is quiet, or another process keeps one of them busy. Each run has put its prediction into
// its trace before its first step. The table has prediction beside measurement, and the share of runs within bounds.
//
// It needs Linux, for taskset, and a machine that does nothing else.
//
// Usage, from the root of the repository: go run ./cmd/lab/bench/firstrun [-seeds N] [-processors 1,2] [-loads quiet,busy]
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headway-rl/headway/cmd/lab/bench/plane"
)

// What a prediction may be off by: in the mean staleness and in the period as shares, in p95 in versions. With a busy
// processor the period has the spread that the prediction states, of at most spreadMax.
const (
	meanMax   = 0.10
	p95Max    = 1
	periodMax = 0.10
	spreadMax = 0.25
	wasteMax  = 0.15
)

// result is what a run says of itself, beside what it expected.
type result struct {
	Staleness struct {
		Mean float64 `json:"measured_mean"`
		P95  float64 `json:"measured_p95"`
	} `json:"staleness"`
	PeriodS struct {
		Mean float64 `json:"mean"`
	} `json:"period_s"`
	Waste struct {
		Share float64 `json:"wasted_share"`
	} `json:"waste"`
	Predicted struct {
		Mean   *float64 `json:"staleness_mean"`
		P95    *float64 `json:"staleness_p95"`
		Period *float64 `json:"period_s"`
		Spread float64  `json:"period_spread"`
		Probe  struct {
			Steps   int     `json:"steps"`
			WindowS float64 `json:"window_s"`
		} `json:"probe"`
	} `json:"predicted"`
}

// arm is one row of the summary.
type arm struct {
	processors int
	busy       bool
	runs       int
	// within counts the runs whose figures are within bounds, one by one and all together.
	mean, p95, period, waste, all int
}

func (a *arm) name() string {
	load := "quiet"
	if a.busy {
		load = "one busy"
	}
	return fmt.Sprintf("%d processors, %s", a.processors, load)
}

func main() {
	seeds := flag.Int("seeds", 10, "seeds of each arm")
	processors := flag.String("processors", "1,2", "numbers of processors")
	loads := flag.String("loads", "quiet,busy", "quiet, busy or both")
	set := flag.String("set", "", "KEY=VALUE for every run, such as queue.policy=drop")
	spin := flag.Bool("spin", false, "keep one processor busy, for this program's own use")
	flag.Parse()
	if *spin {
		var turns atomic.Uint64
		for { // until it is killed
			turns.Add(1)
		}
	}
	if err := measure(*seeds, *processors, *loads, *set); err != nil {
		fmt.Fprintln(os.Stderr, "firstrun:", err)
		os.Exit(1)
	}
}

func measure(seeds int, processors, loads, set string) error {
	if _, err := exec.LookPath("taskset"); err != nil {
		return errors.New("taskset is missing: it belongs to util-linux")
	}
	dir, err := os.MkdirTemp("", "firstrun")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	program, err := plane.Build(dir)
	if err != nil {
		return err
	}
	fmt.Printf("%s, %s/%s, %d processors, load %s; %d seeds\n\n", time.Now().Format(time.DateOnly), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), loadAverage(), seeds)
	fmt.Printf("%-22s %4s  %-21s %-9s %-25s %6s %7s %5s\n", "", "seed", "staleness pred/meas", "p95", "period ms pred/meas", "spread", "wasted", "load")
	var arms []*arm
	for _, word := range strings.Split(processors, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 || n > runtime.NumCPU() {
			return fmt.Errorf("-processors has %q, want numbers from 1 to %d", word, runtime.NumCPU())
		}
		for _, load := range strings.Split(loads, ",") {
			if load != "quiet" && load != "busy" {
				return fmt.Errorf("-loads has %q, want quiet or busy", load)
			}
			a := &arm{processors: n, busy: load == "busy"}
			arms = append(arms, a)
			if err := a.measure(program, dir, set, seeds); err != nil {
				return err
			}
		}
	}
	summarize(arms)
	return nil
}

// measure makes the runs of one arm.
func (a *arm) measure(program, dir, set string, seeds int) error {
	cpus := "0"
	if a.processors > 1 {
		cpus = fmt.Sprintf("0-%d", a.processors-1)
	}
	if a.busy {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		other := exec.Command("taskset", "-c", strconv.Itoa(a.processors-1), self, "-spin")
		if err := other.Start(); err != nil {
			return err
		}
		defer func() {
			_ = other.Process.Kill()
			_ = other.Wait()
		}()
	}
	for seed := 1; seed <= seeds; seed++ {
		load := loadAverage()
		args := []string{"-c", cpus, program, "run", "--seed", strconv.Itoa(seed), "--name", "run", "--json", "--no-dashboard"}
		if set != "" {
			args = append(args, "--set", set)
		}
		var out, problems bytes.Buffer
		cmd := exec.Command("taskset", args...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &problems
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, problems.Bytes())
		}
		if err := os.RemoveAll(filepath.Join(dir, "runs")); err != nil {
			return err
		}
		var r result
		if err := json.Unmarshal(out.Bytes(), &r); err != nil {
			return err
		}
		a.take(seed, &r, load)
	}
	return nil
}

// take counts and prints a run.
func (a *arm) take(seed int, r *result, load string) {
	a.runs++
	p := r.Predicted
	if p.Mean == nil || p.P95 == nil || p.Period == nil {
		fmt.Printf("%-22s %4d  no prediction\n", a.name(), seed)
		return
	}
	off := func(predicted, measured float64) float64 { return predicted/measured - 1 }
	allowed := periodMax
	if a.busy {
		allowed = min(p.Spread, spreadMax)
	}
	mean, p95 := math.Abs(off(*p.Mean, r.Staleness.Mean)) <= meanMax, math.Abs(*p.P95-r.Staleness.P95) <= p95Max
	period, waste := math.Abs(off(*p.Period, r.PeriodS.Mean)) <= allowed, r.Waste.Share < wasteMax
	for _, c := range []struct {
		count *int
		is    bool
	}{{&a.mean, mean}, {&a.p95, p95}, {&a.period, period}, {&a.waste, waste}, {&a.all, mean && p95 && period && waste}} {
		if c.is {
			*c.count++
		}
	}
	fmt.Printf("%-22s %4d  %4.2f/%4.2f %+6.1f %%    %.0f/%.0f       %6.2f/%6.2f %+6.1f %%   %4.0f %% %5.1f %% %6s\n", a.name(), seed, *p.Mean, r.Staleness.Mean, 100*off(*p.Mean, r.Staleness.Mean),
		*p.P95, r.Staleness.P95, 1e3**p.Period, 1e3*r.PeriodS.Mean, 100*off(*p.Period, r.PeriodS.Mean), 100*p.Spread, 100*r.Waste.Share, load)
}

// summarize prints how many runs of each arm are within bounds.
func summarize(arms []*arm) {
	fmt.Printf("\nruns within bounds: mean staleness ± %.0f %%, p95 ± %d version, period ± %.0f %% (busy: the stated spread, at most ± %.0f %%), wasted below %.0f %%\n\n", 100*meanMax, p95Max, 100*periodMax, 100*spreadMax, 100*wasteMax)
	fmt.Printf("%-22s %5s %9s %5s %7s %7s %5s\n", "", "runs", "staleness", "p95", "period", "wasted", "all")
	for _, a := range arms {
		fmt.Printf("%-22s %5d %9d %5d %7d %7d %5d\n", a.name(), a.runs, a.mean, a.p95, a.period, a.waste, a.all)
	}
}

// loadAverage is the machine's load of the last minute, "–" where it is not known.
func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "–"
	}
	return strings.Fields(string(text))[0]
}
