package chaos

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	kills = flag.Int("chaos.kills", 20, "how many kills of each process")
	seed  = flag.Uint64("chaos.seed", 0, "seed of the moments and the victims; 0 draws one")
)

// job is everything that runs.
type job struct {
	t       *testing.T
	dir     string
	python  string
	url     string
	planes  []*process
	victims []*process
	// within is the longest time between two kills.
	within time.Duration
	// freezes: one blow in five freezes a control plane for longer than its lease lasts.
	freezes bool
	// histogram counts the states of the loop that kills hit, killed the victims by kind, frozen those that were stopped for a while.
	histogram map[string]int
	killed    map[string]int
	frozen    int
	seed      uint64
}

// document is small and quick: steps of a fraction of a second, leases and claims that
// run out soon, and every version kept for the audit.
const document = `
seed: 5
rollout: {concurrency: 16, group_size: 4}
engines: [{kind: embedded, slots: 16, stages: 1}]
train: {batch: 16}
queue: {policy: drop, factor: 2}
model: {width: 32, layers: 1, heads: 2}
environment: {kind: remote, held_out: 50}
evaluate: {every: 0}
trainer: {kind: remote, steps: 1000000}
store: {keep_versions: 1000000, snapshot_every: 10, samples_every: 0, nats: {log_bytes_max: 67108864, payload_bytes_max: 67108864}}
failures: {max_attempts: 1000, train_attempts: 1000}
server: {lease_s: 3, claim_s: 3, drain_s: 20}
`

// states are those of the loop that must all be hit.
var states = []string{"recovering", "filling", "training", "syncing", "training and syncing"}

// TestSurvivesKills kills control plane, trainer, worker and a receiving stage of the
// engine of a job whose log is in the control plane's own process.
func TestSurvivesKills(t *testing.T) {
	j := newJob(t)
	address := ports(t, 1)[0]
	j.plane(address)
	j.start(newFront(t, address))
	j.within = 800 * time.Millisecond // so that it is hit while it recovers, too
	j.torment()
	j.judge()
}

// TestClusterSurvivesKills has the log on three NATS servers and a standby beside the
// writer, kills one server at a time, too, and freezes writers until they are deposed.
func TestClusterSurvivesKills(t *testing.T) {
	j := newJob(t)
	urls := j.cluster()
	j.within, j.freezes = 2*time.Second, true
	addresses := ports(t, 2)
	for _, address := range addresses {
		j.plane(address, "--nats", urls, "--set", "store.nats.replicas=3", "--set", "store.nats.writer_s=1")
	}
	j.start(newFront(t, addresses...))
	j.torment()
	j.judge()
}

// TestRunSurvivesKills kills a run that is one process, and resumes it.
func TestRunSurvivesKills(t *testing.T) {
	j := newJob(t)
	args := []string{j.path("headway"), "run", j.path("job.yaml"), "--set", "environment.kind=embedded", "--set", "trainer.kind=embedded", "--dir", j.path("runs"), "--name", "chaos", "--json"}
	p := j.process("run", args...)
	j.victims = append(j.victims, p)
	rng, run := j.draw(), j.path("runs/chaos")
	p.start()
	for range j.left()["run"] {
		p.awaitTrace(run, p.traced(run)+rng.Int64N(75_000))
		p.kill()
		j.killed["run"]++
		p.args = []string{j.path("headway"), "run", "--resume", run, "--json"}
		p.start()
	}
	p.awaitTrace(run, p.traced(run)+75_000)
	if err := p.terminate(time.Minute); err != nil {
		t.Errorf("the run did not end in order: %v\n%s", err, p.tail())
	}
	j.audit()
}

func newJob(t *testing.T) *job {
	t.Helper()
	if os.Getenv("HEADWAY_LONG") == "" {
		t.Skip("kills a running job for minutes: HEADWAY_LONG=1, or make test-long")
	}
	python := os.Getenv("HEADWAY_PYTHON")
	if python == "" {
		python = filepath.Join(root, "clients", "python", ".venv", "bin", "python")
	}
	python, err := filepath.Abs(python)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(python, "-c", "import httpx, numpy, safetensors").CombinedOutput(); err != nil {
		t.Fatalf("%s lacks the client's packages: make test-python, or name another by HEADWAY_PYTHON: %v\n%s", python, err, out)
	}
	j := &job{t: t, dir: t.TempDir(), python: python, histogram: map[string]int{}, killed: map[string]int{}}
	if keep := os.Getenv("HEADWAY_CHAOS_DIR"); keep != "" {
		j.dir = filepath.Join(keep, t.Name())
		if err := os.MkdirAll(j.dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(j.path("job.yaml"), []byte(document), 0o644); err != nil {
		t.Fatal(err)
	}
	build(t, j.dir, "headway", "./cmd/headway")
	return j
}

func (j *job) path(name string) string { return filepath.Join(j.dir, name) }

// process adds a part of the job.
func (j *job) process(name string, args ...string) *process {
	p := &process{t: j.t, name: name, args: args, log: j.path(name + ".log"), env: []string{"PYTHONPATH=" + absolute(j.t, filepath.Join(root, "clients", "python", "src"))}}
	j.t.Cleanup(func() {
		if p.cmd != nil {
			p.kill()
		}
	})
	return p
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// plane adds a control plane.
func (j *job) plane(address string, more ...string) {
	args := []string{j.path("headway"), "serve", j.path("job.yaml"), "--dir", j.path("runs"), "--name", "chaos", "--listen", address}
	j.planes = append(j.planes, j.process(fmt.Sprintf("plane-%d", len(j.planes)), append(args, more...)...))
}

// cluster starts three NATS servers that know each other.
func (j *job) cluster() (urls string) {
	server := build(j.t, j.dir, "nats-server", "github.com/nats-io/nats-server/v2")
	clients, routes := ports(j.t, 3), ports(j.t, 3)
	var mesh, all []string
	for i := range routes {
		mesh = append(mesh, "nats-route://"+routes[i])
		all = append(all, "nats://"+clients[i])
	}
	for i := range clients {
		_, port, _ := strings.Cut(clients[i], ":")
		p := j.process(fmt.Sprintf("nats-%d", i), server, "-a", "127.0.0.1", "-p", port, "-n", fmt.Sprintf("n%d", i), "-js", "-sd", j.path(fmt.Sprintf("nats-%d", i)),
			"--cluster_name", "chaos", "--cluster", "nats://"+routes[i], "--routes", strings.Join(mesh, ","))
		p.start()
		j.victims = append(j.victims, p)
	}
	return strings.Join(all, ",")
}

// start starts everything else, and waits for the first train step.
func (j *job) start(f *front) {
	j.url = f.url()
	for _, p := range j.planes {
		p.start()
		j.victims = append(j.victims, p)
	}
	worker := j.process("worker", j.python, "worker.py", j.url, j.path("worker.jsonl"))
	trainer := j.process("trainer", j.python, filepath.Join(root, "examples", "numpy_trainer", "train.py"), "--url", j.url, "--journal", j.path("trainer.jsonl"), "--step-s", "0.1")
	stage := j.process("stage", j.path("headway"), "receive", j.url, "--engine", "engine-0", "--dir", j.path("received"), "--on-switch", "sleep 0.05")
	for _, p := range []*process{worker, trainer, stage} {
		p.start()
		j.victims = append(j.victims, p)
	}
	j.await("the first train steps", time.Minute, func(s status) bool { return s.Version >= 3 })
}

// status is what this test reads of the control plane's.
type status struct {
	State   string
	Version int64
	Engines []struct {
		State  string
		Stages []struct{ State string }
	}
	Trainer struct{ State string }
	Ledger  struct{ Balanced bool }
	Writer  struct{ Name string }
}

func (j *job) status() (s status, err error) {
	client := &http.Client{Timeout: 2 * time.Second}
	response, err := client.Get(j.url + "/api/v1/status")
	if err != nil {
		return s, err
	}
	defer response.Body.Close()
	return s, json.NewDecoder(response.Body).Decode(&s)
}

// await polls until the status is as wanted.
func (j *job) await(what string, limit time.Duration, wanted func(status) bool) status {
	j.t.Helper()
	deadline := time.Now().Add(limit)
	for {
		s, err := j.status()
		if err == nil && wanted(s) {
			return s
		}
		if time.Now().After(deadline) {
			j.t.Fatalf("%s did not come within %s: %+v, %v%s", what, limit, s, err, j.logs())
		}
		for _, p := range j.victims {
			if gone, why := p.gone(); gone {
				if strings.HasPrefix(p.name, "plane") || strings.HasPrefix(p.name, "stage") { // its supervisor starts it again
					p.start()
					continue
				}
				j.t.Fatalf("%s ended by itself: %v%s", p.name, why, j.logs())
			}
		}
		pass(20 * time.Millisecond)
	}
}

func (j *job) logs() string {
	var b strings.Builder
	for _, p := range j.victims {
		fmt.Fprintf(&b, "\n--- %s (started %d times)\n%s", p.name, p.starts, p.tail())
	}
	return b.String()
}

// loopState is what the loop is doing, as a viewer sees it.
func loopState(s status, err error) string {
	if err != nil || s.State != "running" {
		return "recovering"
	}
	training := s.Trainer.State == "training" || s.Trainer.State == "offered"
	syncing := slices.ContainsFunc(s.Engines, func(e struct {
		State  string
		Stages []struct{ State string }
	}) bool {
		return e.State != "serving"
	})
	switch {
	case training && syncing:
		return "training and syncing"
	case training:
		return "training"
	case syncing:
		return "syncing"
	}
	return "filling"
}

// torment kills every kind of process as often as it is still to be killed, in an order and at moments drawn uniformly.
func (j *job) torment() {
	rng := j.draw()
	var order []string
	for kind, n := range j.left() {
		order = append(order, slices.Repeat([]string{kind}, n)...)
	}
	slices.Sort(order) // a seed repeats the run
	rng.Shuffle(len(order), func(a, b int) { order[a], order[b] = order[b], order[a] })
	for _, kind := range order {
		pass(time.Duration(rng.Float64() * float64(j.within)))
		of := slices.DeleteFunc(slices.Clone(j.victims), func(p *process) bool { return p.kind() != kind })
		victim := of[rng.IntN(len(of))]
		if j.freezes && rng.IntN(5) == 0 {
			j.histogram[loopState(j.status())]++
			j.planes[rng.IntN(len(j.planes))].freeze(3 * time.Second)
			j.frozen++
		}
		j.histogram[loopState(j.status())]++
		victim.kill()
		j.killed[kind]++
		pass(time.Duration(rng.Float64() * 0.3 * float64(time.Second)))
		victim.start()
		for _, p := range j.planes { // one that was deposed, or lost its cluster, ends; its supervisor starts it again
			if gone, _ := p.gone(); gone {
				p.start()
			}
		}
	}
	healed := j.await("a control plane", time.Minute, func(s status) bool { return s.State == "running" })
	j.await("train steps after the last kill", 2*time.Minute, func(s status) bool { return s.Version >= healed.Version+5 && s.Ledger.Balanced })
}

// draw returns the randomness of a test and says how to repeat it.
func (j *job) draw() *rand.Rand {
	j.seed = *seed
	if j.seed == 0 {
		j.seed = rand.Uint64()
	}
	j.t.Logf("seed %d: go test ./cmd/lab/bench/chaos -run '%s$' -chaos.seed %d", j.seed, j.t.Name(), j.seed)
	return rand.New(rand.NewPCG(j.seed, 1))
}

// pass lets time pass: moments are what this test is about, and its subject is processes
// that share no clock with it.
func pass(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

// judge stops the job in order and has it audited.
func (j *job) judge() {
	t := j.t
	writer := j.await("the writer", time.Minute, func(s status) bool { return s.State == "running" })
	at := slices.IndexFunc(j.planes, func(p *process) bool {
		return strings.HasSuffix(writer.Writer.Name, fmt.Sprintf("-%d", p.cmd.Process.Pid))
	})
	if at < 0 {
		t.Fatalf("no control plane is the writer %s%s", writer.Writer.Name, j.logs())
	}
	for i, p := range j.planes {
		if i != at { // or it would take over and go on
			p.kill()
		}
	}
	if err := j.planes[at].terminate(40 * time.Second); err != nil {
		t.Errorf("the control plane did not end in order: %v\n%s", err, j.planes[at].tail())
	}
	t.Logf("killed %v, frozen %d; loop states hit %v; version %d", j.killed, j.frozen, j.histogram, writer.Version)
	for _, state := range states {
		if j.total() >= 50 && j.histogram[state] == 0 && *ledgerFile == "" { // many runs hit them all
			t.Errorf("no kill hit the state %q: %v", state, j.histogram)
		}
	}
	j.audit(j.path("trainer.jsonl"), j.path("worker.jsonl"))
}

// audit has the remains judged, and writes the kills down.
func (j *job) audit(journals ...string) {
	t, run := j.t, j.path("runs/chaos")
	out, err := exec.Command(j.python, append([]string{"audit.py", run}, journals...)...).Output()
	t.Logf("audit: %s", out)
	if err != nil {
		t.Errorf("the audit found the run unsound: %v", err)
	}
	if out, err := exec.Command(j.path("headway"), "replay", run).CombinedOutput(); err != nil {
		t.Errorf("replay: %v\n%s", err, out)
	}
	if out, err := exec.Command(j.path("headway"), "weights", "verify", "--run", run).CombinedOutput(); err != nil {
		t.Errorf("weights verify: %v\n%s", err, out)
	}
	j.write(out)
}
