package main

import (
	"bytes"
	"encoding/json"
	"github.com/headway-rl/headway/internal/failure"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// simulated is a document small enough for tests.
const simulated = `
seed: 3
rollout:
  concurrency: 32
  group_size: 4
train: {batch: 32}
queue: {policy: drop, factor: 2}
modelled:
  length: {kind: lognormal, mean_tokens: 200, tailness: 50, cap_tokens: 1500}
  train: {utilization: 0.7}
steps: {warmup: 50, measured: 200}
`

func document(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sim.yaml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// clockless takes out the two figures that depend on the wall clock.
func clockless(text string) string {
	return regexp.MustCompile(`"(wall_s|events_per_s)": [0-9.e+-]+`).ReplaceAllString(text, `"$1": 0`)
}

func TestSimulateJSON(t *testing.T) {
	file := document(t, simulated)
	code, first, stderr := headway(t, "simulate", file, "--json")
	if code != failure.ExitDone || stderr != "" {
		t.Fatalf("code %d, stderr %q", code, stderr)
	}
	if _, again, _ := headway(t, "simulate", file, "--json"); clockless(again) != clockless(first) {
		t.Error("the same document gave other bytes")
	}
	if _, other, _ := headway(t, "simulate", file, "--json", "--set", "seed=4"); clockless(other) == clockless(first) {
		t.Error("another seed gave the same bytes")
	}
	var doc map[string]any
	if err := json.Unmarshal([]byte(first), &doc); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{
		"staleness.mean", "staleness.p50", "staleness.p95", "staleness.p99", "staleness.max", "staleness.histogram", "staleness.mean_syncs",
		"pqs.mean", "iqs.mean", "token_staleness.mean", "utilization", "period_s.mean", "trainer_idle_ratio", "rollout_idle_ratio",
		"throughput.production_rollouts_per_s", "throughput.effective_rollouts_per_s", "throughput.consumption_rollouts_per_s", "throughput.binding",
		"series", "length.sampled_mean_tokens", "length.trained_mean_tokens", "length.sampled_max_tokens", "length.trained_max_tokens",
		"ledger.admitted", "ledger.in_flight", "ledger.waiting", "ledger.queued", "ledger.leased", "ledger.trained", "ledger.evicted",
		"ledger.discarded", "ledger.filtered", "ledger.pruned", "ledger.cancelled", "ledger.failed",
		"predicted.staleness_mean", "predicted.period_s", "events", "events_per_s", "wall_s", "confidence.staleness_mean_95",
	} {
		at := any(doc)
		for _, key := range strings.Split(path, ".") {
			m, ok := at.(map[string]any)
			if at = m[key]; !ok || at == nil {
				t.Errorf("%s is missing", path)
				break
			}
		}
	}
	if n := len(doc["series"].([]any)); n != 250 {
		t.Errorf("%d points in the series, want one a step", n)
	}
	if events := doc["events"].(float64); events < 250*33 {
		t.Errorf("%g events, want every completion and step end", events)
	}
}

// The simulation stands close to the closed form printed beside it.
func TestSimulateTable(t *testing.T) {
	code, stdout, stderr := headway(t, "simulate", document(t, simulated))
	if code != failure.ExitDone || stderr != "" {
		t.Fatalf("code %d, stderr %q", code, stderr)
	}
	for _, want := range []string{"C 32 · B 32 · S 4", "closed form", "pre-queue (PQS)", "rollouts: 8 000 trained", "events in"} {
		if !strings.Contains(strings.ReplaceAll(stdout, "\u202f", " "), want) {
			t.Errorf("the table lacks %q:\n%s", want, stdout)
		}
	}
}

func TestSimulateGrid(t *testing.T) {
	file := document(t, simulated)
	arguments := []string{"simulate", file, "--json", "--seeds", "2", "--grid", "queue.factor=1,2", "--grid", "train.batch=16,32"}
	code, stdout, stderr := headway(t, arguments...)
	if code != failure.ExitDone || stderr != "" {
		t.Fatalf("code %d, stderr %q", code, stderr)
	}
	if _, again, _ := headway(t, arguments...); clockless(again) != clockless(stdout) {
		t.Error("the same grid gave other bytes")
	}
	var doc struct {
		Points []struct {
			Set       map[string]string
			Seeds     int
			Staleness struct {
				Mean  float64
				Error float64 `json:"standard_error"`
			}
		}
		Runs []struct {
			Seed      uint64
			Set       map[string]string
			Staleness struct{ Mean float64 }
			Series    any
		}
	}
	if err := json.Unmarshal([]byte(stdout), &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.Points) != 4 || len(doc.Runs) != 8 {
		t.Fatalf("%d points and %d runs, want 4 and 8", len(doc.Points), len(doc.Runs))
	}
	if p := doc.Points[1]; p.Set["queue.factor"] != "1" || p.Set["train.batch"] != "32" || p.Seeds != 2 || p.Staleness.Error <= 0 {
		t.Errorf("second point %+v", p)
	}
	if r := doc.Runs[3]; r.Seed != 4 || r.Set["train.batch"] != "32" || r.Series != nil {
		t.Errorf("fourth run %+v", r)
	}
	single := strings.Split(clockless(first(t, "simulate", file, "--json", "--set", "queue.factor=2", "--set", "train.batch=16")), "\n")[2]
	if !strings.Contains(stdout, strings.TrimSpace(single)) {
		t.Errorf("the grid lacks what the single simulation says: %s", single)
	}
	code, stdout, _ = headway(t, "simulate", file, "--grid", "queue.factor=1,2")
	if code != failure.ExitDone || !strings.Contains(stdout, "queue.factor") || strings.Count(stdout, "\n") < 4 {
		t.Errorf("code %d, table:\n%s", code, stdout)
	}
}

func first(t *testing.T, arguments ...string) string {
	t.Helper()
	code, stdout, stderr := headway(t, arguments...)
	if code != failure.ExitDone {
		t.Fatalf("headway %q: code %d: %s", arguments, code, stderr)
	}
	return stdout
}

func TestSimulateRefuses(t *testing.T) {
	file := document(t, simulated)
	existing := document(t, "kept\n")
	starving := "--set=queue={policy: max, max_staleness: 0, factor: 1}"
	for _, test := range []struct {
		arguments []string
		code      int
		want      []string
	}{
		{[]string{"nowhere.yaml"}, failure.ExitUsage, []string{"nowhere.yaml"}},
		{[]string{file, "--set", "rolout.concurrency=3"}, failure.ExitUsage, []string{"rollout"}},
		{[]string{file, "--set", "train.batch=33"}, failure.ExitUsage, []string{"33"}},
		{[]string{file, "--set", "modelled.train.utilization=null"}, failure.ExitUsage, []string{"utilization", "step_s"}},
		{[]string{file, "--seeds", "0"}, failure.ExitUsage, []string{"--seeds 0"}},
		{[]string{file, "--grid", "queue.factor"}, failure.ExitUsage, []string{"--grid", "KEY=V1,V2"}},
		{[]string{file, "--grid", "queue.factor=1,,2"}, failure.ExitUsage, []string{"--grid"}},
		{[]string{file, "--grid", "queue.factor=1", "--grid", "queue.factor=2"}, failure.ExitUsage, []string{"twice"}},
		{[]string{file, "--grid", "queue.factr=1,2"}, failure.ExitUsage, []string{"--grid: queue.factr", "queue.factor"}},
		{[]string{file, "--set", "modelled.decode_tokens_per_s=1e-9"}, failure.ExitUsage, []string{"train step", "modelled.train.step_s"}},
		{[]string{file, "--set", "modelled.train.utilization=1e-9"}, failure.ExitUsage, []string{"utilization", "1e-09", "above 0"}},
		{[]string{file, "--set", "modelled.decode_tokens_per_s=.nan"}, failure.ExitUsage, []string{".nan", "a number above 0"}},
		{[]string{file, "--set", "modelled.length={kind: empirical, groups: []}"}, failure.ExitUsage, []string{"modelled.length"}},
		{[]string{file, "--grid", "rho=1,2"}, failure.ExitUsage, []string{"modelled.train.utilization"}},
		{[]string{file, "--grid", "queue.factor=0.1,2"}, failure.ExitUsage, []string{"--grid: queue.factor: 0.1 is not allowed"}},
		{[]string{file, "--seeds", "2", "--bias"}, failure.ExitUsage, []string{"--bias is of one simulation"}},
		{[]string{file, "--seeds", "2", "--trace", "x.ndjson"}, failure.ExitUsage, []string{"--trace"}},
		{[]string{file, "--trace", existing}, failure.ExitUsage, []string{"exists"}},
		{[]string{file, "--trace", filepath.Join(existing, "x")}, failure.ExitUsage, []string{"--trace"}},
		{[]string{file, starving, "--set", "modelled.sync.time_s=500"}, failure.ExitUsage, []string{"starves"}},
	} {
		code, stdout, stderr := headway(t, append([]string{"simulate"}, test.arguments...)...)
		if code != test.code || stdout != "" {
			t.Errorf("simulate %q: code %d, stdout %q; want %d and nothing\n%s", test.arguments, code, stdout, test.code, stderr)
		}
		for _, want := range test.want {
			if !strings.Contains(stderr, want) {
				t.Errorf("simulate %q: message lacks %q:\n%s", test.arguments, want, stderr)
			}
		}
	}
	if text, err := os.ReadFile(existing); err != nil || string(text) != "kept\n" {
		t.Errorf("a file that was there was changed to %q (%v)", text, err)
	}
}

// A simulation's trace replays, and one flipped byte is found.
func TestSimulateReplayResimulate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace.ndjson")
	simulation := first(t, "simulate", document(t, simulated), "--json", "--trace", path)
	if stdout := first(t, "replay", path); !strings.Contains(stdout, "identical") {
		t.Errorf("replay says %q", stdout)
	}
	var replayed struct {
		Identical  bool
		Events     int
		Difference any
	}
	if err := json.Unmarshal([]byte(first(t, "replay", filepath.Dir(path), "--json")), &replayed); err != nil || !replayed.Identical || replayed.Events < 8000 {
		t.Errorf("%v: %+v", err, replayed)
	}
	var sim, again struct {
		Staleness    struct{ Mean float64 }
		Measured     struct{ Staleness struct{ Mean float64 } }
		Extrapolated float64 `json:"extrapolated_ratio"`
	}
	if err := json.Unmarshal([]byte(simulation), &sim); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(first(t, "resimulate", path, "--json")), &again); err != nil {
		t.Fatal(err)
	}
	if again.Measured.Staleness.Mean != sim.Staleness.Mean {
		t.Errorf("measured again %v, the simulation said %v", again.Measured.Staleness.Mean, sim.Staleness.Mean)
	}
	if d := again.Staleness.Mean/sim.Staleness.Mean - 1; d > 0.01 || d < -0.01 || again.Extrapolated > 0.05 {
		t.Errorf("resimulated %v of %v, %v extrapolated", again.Staleness.Mean, sim.Staleness.Mean, again.Extrapolated)
	}
	if stdout := first(t, "resimulate", path, "--set", "queue.factor=1"); !strings.Contains(stdout, "queue.factor=1") || !strings.Contains(stdout, "the run itself") {
		t.Errorf("resimulate prints %q", stdout)
	}
	code, _, stderr := headway(t, "resimulate", path, "--set", "modelled.length.tailness=3")
	if code != failure.ExitUsage || !strings.Contains(stderr, "own lengths") {
		t.Errorf("code %d: %s", code, stderr)
	}
	damage(t, path)
}

// damage changes a trace in every way a user may meet it.
func damage(t *testing.T, path string) {
	t.Helper()
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(whole)
	flipped[len(flipped)/2] ^= 1
	noEnd := whole[:bytes.LastIndexByte(whole[:len(whole)-1], '\n')+1]
	for what, data := range map[string][]byte{"checksum": flipped, "ends in the middle": whole[:len(whole)-9], "interrupted": noEnd, "empty": nil} {
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		for _, command := range []string{"replay", "resimulate"} {
			code, stdout, stderr := headway(t, command, path)
			if command == "resimulate" && (what == "interrupted" || what == "ends in the middle") {
				if code != failure.ExitDone {
					t.Errorf("an interrupted run cannot be resimulated: %s", stderr)
				}
				continue
			}
			want := failure.ExitFailure
			if command == "resimulate" && what == "empty" { // it is no trace of ours, as for headway diagnose
				want = failure.ExitUsage
			}
			if code != want || stdout != "" || !strings.Contains(stderr, what) || !strings.Contains(stderr, "line") {
				t.Errorf("%s %s: code %d, stdout %q, stderr %q", command, what, code, stdout, stderr)
			}
		}
	}
	for _, command := range []string{"replay", "resimulate"} {
		if code, _, stderr := headway(t, command, path+"x"); code != failure.ExitUsage || !strings.Contains(stderr, "does not exist") {
			t.Errorf("%s of a missing file: code %d: %s", command, code, stderr)
		}
	}
}

// TestSimulateAsksForWhatIsCostly: one mistyped zero must not fill the memory.
func TestSimulateAsksForWhatIsCostly(t *testing.T) {
	for key, want := range map[string]string{"rollout.concurrency=16777216": "GB of memory", "steps.measured=90000000": "GB of memory", "steps.measured=20000000": "take about"} {
		code, _, stderr := headway(t, "simulate", "../../examples/simulation.yaml", "--set", key)
		if code != failure.ExitUsage || !strings.Contains(stderr, want) || !strings.Contains(stderr, "--yes") {
			t.Errorf("%s: exit code %d and %q, want 2 and what says %q", key, code, stderr, want)
		}
	}
}
