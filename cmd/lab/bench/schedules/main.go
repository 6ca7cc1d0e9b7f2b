// Command schedules measures the gains and costs of asynchrony. It trains the same task from the same
// seed synchronously and fully asynchronously, with and without tool time, on the real engine and
// trainer. Beside each it sets the prediction of `headway simulate`.
//
// The workload is fixed: the decode step and the train step have a least time, as hardware gives
// them. So the machine's noise and the number of its cores matter little. The simulations know these
// times, the lengths that the asynchronous run sampled, and nothing else of the runs.
//
// Usage, from the root of the repository: go run ./cmd/lab/bench/schedules [-steps N] [-seeds N]
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/headway-rl/headway/cmd/lab/bench/plane"
)

// arm is one setting that is run under both schedules.
type arm struct {
	name string
	tool string // the environment's service time
}

var arms = []arm{
	{"no tool time", "{kind: none}"},
	{"tool time, lognormal tail", "{kind: lognormal, mean_s: 0.03, tailness: 70}"},
}

// decodeStepS and stepS are the least times of a decode and a train step.
const (
	decodeStepS = 0.006
	stepS       = 0.06
)

const document = `
seed: %d
schedule: %s
rollout: {concurrency: 64, group_size: 8%s}
train: {batch: 64%s}
queue: {policy: drop, factor: 1}
engines: [{kind: embedded, decode_step_s: %g}]
environment: {task: reverse, service_time: %s}
trainer: {steps: %d, step_s: %g, threads: 1}
filter: {zero_advantage: false}
evaluate: {every: 0}
`

// queueless is document for the synchronous schedule, which replaces the queue.
func text(seed int, schedule, rollout, train string, a arm, steps int) string {
	doc := fmt.Sprintf(document, seed, schedule, rollout, train, decodeStepS, a.tool, steps, stepS)
	if schedule == "synchronous" {
		doc = strings.Replace(doc, "queue: {policy: drop, factor: 1}\n", "", 1)
	}
	return doc
}

// lived is what a run says of itself.
type lived struct {
	HeldOutAccuracy float64 `json:"held_out_accuracy"`
	WallS           float64 `json:"wall_s"`
	TokensPerS      float64 `json:"tokens_per_s"`
	Staleness       struct {
		Mean float64 `json:"measured_mean"`
	} `json:"staleness"`
	Throughput struct {
		Wall float64 `json:"consumption_rollouts_per_wall_s"`
	} `json:"throughput"`
	Trace string `json:"trace"`
	tool  float64
	gen   float64
}

// simulated is what a simulation says.
type simulated struct {
	Staleness struct {
		Mean float64 `json:"mean"`
	} `json:"staleness"`
	Throughput struct {
		Wall float64 `json:"consumption_rollouts_per_wall_s"`
	} `json:"throughput"`
}

func main() {
	steps := flag.Int("steps", 600, "train steps of each run")
	seeds := flag.Int("seeds", 1, "seeds; medians over them are printed")
	flag.Parse()
	if err := measure(*steps, *seeds); err != nil {
		fmt.Fprintln(os.Stderr, "schedules:", err)
		os.Exit(1)
	}
}

func measure(steps, seeds int) error {
	dir, err := os.MkdirTemp("", "schedules")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	program, err := plane.Build(dir)
	if err != nil {
		return err
	}
	fmt.Printf("%s, %s/%s, %d processors; %d train steps, medians of %d seeds\n", time.Now().Format(time.DateOnly), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), steps, seeds)
	fmt.Printf("decode step %g s, train step %g s, C 64, B 64, S 8, q 1\n\n", decodeStepS, stepS)
	fmt.Printf("%-26s %-13s %9s %10s %10s %10s %10s\n", "", "schedule", "wall s", "tokens/s", "rollouts/s", "staleness", "accuracy")
	for _, a := range arms {
		if err := compare(program, dir, a, steps, seeds); err != nil {
			return err
		}
	}
	return nil
}

// compare runs and simulates one arm under both schedules.
func compare(program, dir string, a arm, steps, seeds int) error {
	var ratios, expected []float64
	for _, schedule := range []string{"synchronous", "asynchronous"} {
		var runs []lived
		for seed := 1; seed <= seeds; seed++ {
			r, err := run(program, dir, text(seed, schedule, "", "", a, steps), fmt.Sprintf("%s-%d-%d", schedule, seed, len(a.name)))
			if err != nil {
				return err
			}
			runs = append(runs, r)
		}
		s, err := simulate(program, dir, a, schedule, runs[0])
		if err != nil {
			return err
		}
		pick := func(f func(lived) float64) float64 {
			var xs []float64
			for _, r := range runs {
				xs = append(xs, f(r))
			}
			slices.Sort(xs)
			return xs[len(xs)/2]
		}
		rate := pick(func(r lived) float64 { return r.Throughput.Wall })
		ratios, expected = append(ratios, rate), append(expected, s.Throughput.Wall)
		fmt.Printf("%-26s %-13s %9.1f %10.0f %10.0f %10.2f %10.3f\n", a.name, schedule, pick(func(r lived) float64 { return r.WallS }),
			pick(func(r lived) float64 { return r.TokensPerS }), rate, pick(func(r lived) float64 { return r.Staleness.Mean }),
			pick(func(r lived) float64 { return r.HeldOutAccuracy }))
		fmt.Printf("%-26s %-13s %9s %10s %10.0f %10.2f\n", "", "  simulated", "", "", s.Throughput.Wall, s.Staleness.Mean)
		if schedule == "asynchronous" {
			fmt.Printf("%-26s a rollout generates %.0f ms and waits %.0f ms for tools on average\n", "", pick(func(r lived) float64 { return r.gen })*1e3, pick(func(r lived) float64 { return r.tool })*1e3)
		}
	}
	measured, predicted := ratios[1]/ratios[0], expected[1]/expected[0]
	fmt.Printf("%-26s asynchronous over synchronous, rollouts trained per second: measured %.2f, simulated %.2f (%+.1f %%)\n\n", "", measured, predicted, 100*(predicted/measured-1))
	return nil
}

func run(program, dir, doc, name string) (lived, error) {
	var r lived
	path := filepath.Join(dir, name+".yaml")
	if err := os.WriteFile(path, []byte(doc), 0o644); err != nil {
		return r, err
	}
	out, err := call(program, dir, "run", path, "--name", name, "--json")
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(out, &r); err != nil {
		return r, err
	}
	return r, lengths(filepath.Join(dir, r.Trace), path+".lengths", &r)
}

// simulate says what to expect of a schedule from the least times and the lengths
// that the run sampled.
func simulate(program, dir string, a arm, schedule string, r lived) (simulated, error) {
	var s simulated
	path := filepath.Join(dir, "simulate.yaml")
	rollout := fmt.Sprintf(", decode_tokens_per_s: %g, length: {kind: empirical, file: %s}", 1/decodeStepS, filepath.Join(dir, "lengths"))
	doc := text(1, schedule, rollout, fmt.Sprintf(", step_s: %g", stepS), a, 100)
	if err := os.WriteFile(path, []byte(doc), 0o644); err != nil {
		return s, err
	}
	out, err := call(program, dir, "simulate", path, "--json")
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(out, &s)
}

func call(program, dir string, args ...string) ([]byte, error) {
	var out, problems bytes.Buffer
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &problems
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("headway %s: %w\n%s", strings.Join(args, " "), err, problems.Bytes())
	}
	return out.Bytes(), nil
}

// lengths writes the lengths that a run sampled, a group a line, and takes the mean times of its rollouts.
func lengths(trace, to string, r *lived) error {
	in, err := os.Open(trace)
	if err != nil {
		return err
	}
	defer in.Close()
	groups := map[int64][]int{}
	var order []int64
	var n, gen, env float64
	scanner := bufio.NewScanner(in)
	scanner.Buffer(nil, 1<<24)
	for scanner.Scan() {
		var line struct {
			E      string  `json:"e"`
			G      int64   `json:"g"`
			Tokens int     `json:"tokens"`
			Gen    float64 `json:"gen_ns"`
			Env    float64 `json:"env_ns"`
		}
		if err := json.Unmarshal(scanner.Bytes(), &line); err != nil {
			return err
		}
		if line.E != "rollout-scored" {
			continue
		}
		if groups[line.G] == nil {
			order = append(order, line.G)
		}
		groups[line.G] = append(groups[line.G], line.Tokens)
		n, gen, env = n+1, gen+line.Gen/1e9, env+line.Env/1e9
	}
	if err := scanner.Err(); err != nil {
		return err
	}
	r.gen, r.tool = gen/n, env/n
	var out bytes.Buffer
	for _, g := range order {
		if len(groups[g]) == 8 {
			text, _ := json.Marshal(groups[g])
			out.Write(append(text, '\n'))
		}
	}
	return os.WriteFile(filepath.Join(filepath.Dir(to), "lengths"), out.Bytes(), 0o644)
}
