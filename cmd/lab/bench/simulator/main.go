// Command simulator measures how fast `headway simulate` is, beside a plain SimPy
// program of the same model, and how far two cores take a grid.
//
// Speed is that of the whole command, start-up, closed form and printing included,
// on one core: rollout completions and train-step ends a second. Both programs are
// run in turn, several times, each time with another seed; medians are printed. The
// SimPy program shares nothing with Headway, so that its staleness is an independent
// check of ours.
//
// Usage, from the root of the repository: go run ./cmd/lab/bench/simulator [-runs N] [-json FILE] [-against COMMIT]
//
// With -against, the working tree's simulator is compared with that of a commit instead.
//
// The first run installs SimPy (requirements.txt) for the Python on the PATH, in a
// virtual environment in the user's cache folder.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/headway-rl/headway/cmd/lab/bench/plane"
	"github.com/headway-rl/headway/cmd/lab/bench/python"
)

// size is a setting of the comparison: C = B rollouts.
type size struct {
	concurrency int
	// warmup and measured are the train steps of the SimPy program; ours makes longer times
	// as many, so that its start-up does not decide.
	warmup, measured, longer int
}

var sizes = []size{{128, 100, 2000, 20}, {1024, 40, 400, 20}, {16384, 20, 40, 20}}

// The model of both programs beside C and B: examples/simulation.yaml with a train
// step of stepS seconds, which takes about as long as the rollouts of a batch.
const (
	groupSize  = 8
	meanTokens = 1400
	tailness   = 50
	capTokens  = 8080
	tokensPerS = 50
	stepS      = 30
)

// measurement is what one run of a program gave.
type measurement struct {
	events      int64
	wallS, cpuS float64
	staleness   float64
}

func (m measurement) perCPU() float64  { return float64(m.events) / m.cpuS }
func (m measurement) perWall() float64 { return float64(m.events) / m.wallS }

// comparison is a line of the table, and an object of the JSON.
type comparison struct {
	Concurrency       int     `json:"concurrency_rollouts"`
	EventsPerCPUS     float64 `json:"events_per_cpu_s"`
	EventsPerWallS    float64 `json:"events_per_wall_s"`
	Staleness         float64 `json:"staleness_mean"`
	StalenessError    float64 `json:"staleness_standard_error"`
	PeerEventsPerCPUS float64 `json:"simpy_events_per_cpu_s,omitempty"`
	PeerWallS         float64 `json:"simpy_events_per_wall_s,omitempty"`
	PeerStaleness     float64 `json:"simpy_staleness_mean,omitempty"`
	PeerError         float64 `json:"simpy_staleness_standard_error,omitempty"`
	Ratio             float64 `json:"speed_ratio,omitempty"`
	Difference        float64 `json:"staleness_relative_difference,omitempty"`
}

// scaling is what a second core brings a grid.
type scaling struct {
	Simulations int     `json:"simulations"`
	OneCoreS    float64 `json:"one_core_s"`
	TwoCoresS   float64 `json:"two_cores_s"`
	// OneCoreCPUS and TwoCoresCPUS are what the cores worked: where these are alike, the second core
	// is only kept from its half by other programs.
	OneCoreCPUS  float64 `json:"one_core_cpu_s"`
	TwoCoresCPUS float64 `json:"two_cores_cpu_s"`
	SpeedUp      float64 `json:"speed_up"`
}

type result struct {
	Date       string       `json:"date"`
	Machine    string       `json:"machine"`
	Runs       int          `json:"runs"`
	Comparison []comparison `json:"comparison"`
	Grid       *scaling     `json:"grid,omitempty"`
}

func main() {
	runs := flag.Int("runs", 5, "runs of each program, each with another seed; with -against, rounds of old, new, new, old")
	out := flag.String("json", "", "also write the figures to this file")
	against := flag.String("against", "", "compare the simulator with that of this commit instead")
	flag.Parse()
	if *runs < 1 || flag.NArg() > 0 || *against != "" && *out != "" {
		fmt.Fprintln(os.Stderr, "simulator: usage: go run ./cmd/lab/bench/simulator [-runs N] [-json FILE | -against COMMIT], with at least 1 run")
		os.Exit(2)
	}
	run := func() error { return bench(*runs, *out) }
	if *against != "" {
		run = func() error { return compareCommits(*against, *runs) }
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "simulator:", err)
		os.Exit(1)
	}
}

// bench measures everything and prints it. Without Python it prints our part, and
// returns an error that says what is missing.
func bench(runs int, out string) error {
	dir, err := os.MkdirTemp("", "simulator")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	program, err := plane.Build(dir)
	if err != nil {
		return err
	}
	interpreter, missing := python.Prepare("simulator", "SimPy", "simpy")
	res := result{Date: time.Now().Format(time.DateOnly), Runs: runs,
		Machine: fmt.Sprintf("%s/%s, %s, %d processors", runtime.GOOS, runtime.GOARCH, runtime.Version(), runtime.NumCPU())}
	fmt.Printf("%s, %s; medians of %d runs, one core\n\n", res.Date, res.Machine, runs)
	fmt.Printf("%7s %14s %14s %14s %8s %18s %18s %11s\n", "C = B", "events/CPU s", "events/wall s", "SimPy/CPU s", "ratio", "staleness", "SimPy", "difference")
	for _, s := range sizes {
		c, err := compare(program, interpreter, s, runs)
		if err != nil {
			return err
		}
		res.Comparison = append(res.Comparison, c)
		c.print()
	}
	if runtime.NumCPU() > 1 {
		if res.Grid, err = grid(program, runs); err != nil {
			return err
		}
		fmt.Printf("\ngrid of %d simulations: %.2f s on one core (%.2f s of work), %.2f s on two (%.2f s), %.2f times as fast\n",
			res.Grid.Simulations, res.Grid.OneCoreS, res.Grid.OneCoreCPUS, res.Grid.TwoCoresS, res.Grid.TwoCoresCPUS, res.Grid.SpeedUp)
	}
	if out != "" {
		text, err := json.MarshalIndent(res, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(out, append(text, '\n'), 0o644); err != nil {
			return err
		}
	}
	return missing
}

func (c comparison) print() {
	fmt.Printf("%7d %14.0f %14.0f", c.Concurrency, c.EventsPerCPUS, c.EventsPerWallS)
	if c.Ratio == 0 {
		fmt.Printf(" %14s %8s %9.4f ± %.4f\n", "-", "-", c.Staleness, c.StalenessError)
		return
	}
	fmt.Printf(" %14.0f %8.0f %9.4f ± %.4f %9.4f ± %.4f %10.2f%%\n", c.PeerEventsPerCPUS, c.Ratio, c.Staleness, c.StalenessError, c.PeerStaleness, c.PeerError, 100*c.Difference)
}

// compare runs both programs in turn.
func compare(program, python string, s size, runs int) (comparison, error) {
	var ours, theirs []measurement
	for seed := 1; seed <= runs; seed++ {
		m, err := headway(program, ".", s, seed)
		if err != nil {
			return comparison{}, err
		}
		ours = append(ours, m)
		if python == "" {
			continue
		}
		if m, err = peer(python, s, seed); err != nil {
			return comparison{}, err
		}
		theirs = append(theirs, m)
	}
	c := comparison{Concurrency: s.concurrency, EventsPerCPUS: median(ours, measurement.perCPU), EventsPerWallS: median(ours, measurement.perWall)}
	c.Staleness, c.StalenessError = mean(ours)
	if python != "" {
		c.PeerEventsPerCPUS, c.PeerWallS = median(theirs, measurement.perCPU), median(theirs, measurement.perWall)
		c.PeerStaleness, c.PeerError = mean(theirs)
		c.Ratio = c.EventsPerCPUS / c.PeerEventsPerCPUS
		c.Difference = c.PeerStaleness/c.Staleness - 1
	}
	return c, nil
}

// settings are the --set flags of a simulation, but for the time of its train step.
func settings(s size, seed int) []string {
	args := []string{}
	for _, kv := range []string{
		fmt.Sprintf("seed=%d", seed),
		fmt.Sprintf("rollout.concurrency=%d", s.concurrency),
		fmt.Sprintf("train.batch=%d", s.concurrency),
		fmt.Sprintf("steps.warmup=%d", s.warmup),
		fmt.Sprintf("steps.measured=%d", s.longer*s.measured),
	} {
		args = append(args, "--set", kv)
	}
	return args
}

// trainStep sets the time of a train step.
func trainStep(key string) string { return fmt.Sprintf("%s=%d", key, stepS) }

// headway runs our simulation on one core, of the examples of a source folder.
func headway(program, source string, s size, seed int) (measurement, error) {
	var doc struct {
		Events    int64
		Staleness struct{ Mean float64 }
	}
	example := filepath.Join(source, "examples", "simulation.yaml")
	text, err := os.ReadFile(example)
	if err != nil {
		return measurement{}, err
	}
	key := "modelled.train.step_s"
	if !bytes.Contains(text, []byte("\nmodelled:")) { // a commit of before that section
		key = "train.step_s"
	}
	args := append([]string{"simulate", example, "--json", "--set", trainStep(key)}, settings(s, seed)...)
	m, err := timed(&doc, "GOMAXPROCS=1", program, args...)
	m.events, m.staleness = doc.Events, doc.Staleness.Mean
	return m, err
}

// peer runs the SimPy program.
func peer(python string, s size, seed int) (measurement, error) {
	var doc struct {
		Events    int64
		Staleness float64
	}
	args := []string{filepath.Join("cmd/lab/bench", "simulator", "peer.py")}
	for _, f := range []struct {
		name  string
		value int
	}{
		{"concurrency", s.concurrency}, {"group-size", groupSize}, {"batch-groups", s.concurrency / groupSize},
		{"queue-groups", s.concurrency / groupSize}, {"mean-tokens", meanTokens}, {"tailness", tailness}, {"cap-tokens", capTokens},
		{"tokens-per-s", tokensPerS}, {"step-s", stepS}, {"warmup", s.warmup}, {"measured", s.measured}, {"seed", seed},
	} {
		args = append(args, "--"+f.name, fmt.Sprint(f.value))
	}
	m, err := timed(&doc, "PYTHONHASHSEED=0", python, args...)
	m.events, m.staleness = doc.Events, doc.Staleness
	return m, err
}

// timed runs a program that prints JSON, with one more variable in its environment.
func timed(doc any, variable, program string, args ...string) (m measurement, err error) {
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), variable)
	began := time.Now()
	text, err := cmd.Output()
	if exit, ok := err.(*exec.ExitError); ok {
		return m, fmt.Errorf("%s: %w\n%s", filepath.Base(program), err, exit.Stderr)
	}
	if err != nil {
		return m, err
	}
	m.wallS = time.Since(began).Seconds()
	m.cpuS = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	return m, json.Unmarshal(text, doc)
}

// median of a figure over runs.
func median(runs []measurement, of func(measurement) float64) float64 {
	var values []float64
	for _, m := range runs {
		values = append(values, of(m))
	}
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

// mean returns the mean staleness over runs and its standard error, 0 for one run.
func mean(runs []measurement) (mean, standardError float64) {
	n := float64(len(runs))
	for _, m := range runs {
		mean += m.staleness / n
	}
	squares := 0.0
	for _, m := range runs {
		squares += (m.staleness - mean) * (m.staleness - mean)
	}
	if n < 2 {
		return mean, 0
	}
	return mean, math.Sqrt(squares / (n - 1) / n)
}

// grid times a grid on one core and on two, in turn.
func grid(program string, runs int) (*scaling, error) {
	s := size{concurrency: 1024, warmup: 40, measured: 200, longer: 2}
	args := append([]string{"simulate", filepath.Join("examples", "simulation.yaml"), "--json",
		"--accept-unsettled", "--grid", "queue.factor=1,2,4,8", "--grid", "modelled.length.tailness=30,50,70,90", "--set", trainStep("modelled.train.step_s")}, settings(s, 1)...)
	var one, two []measurement
	var doc struct{ Runs []struct{} }
	for range runs {
		for cores, into := range []*[]measurement{&one, &two} {
			m, err := timed(&doc, fmt.Sprintf("GOMAXPROCS=%d", cores+1), program, args...)
			if err != nil {
				return nil, err
			}
			*into = append(*into, m)
		}
	}
	wall := func(m measurement) float64 { return m.wallS }
	cpu := func(m measurement) float64 { return m.cpuS }
	g := &scaling{Simulations: len(doc.Runs), OneCoreS: median(one, wall), TwoCoresS: median(two, wall), OneCoreCPUS: median(one, cpu), TwoCoresCPUS: median(two, cpu)}
	g.SpeedUp = g.OneCoreS / g.TwoCoresS
	return g, nil
}
