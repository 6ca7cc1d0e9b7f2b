package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/headway-rl/headway/internal/tinker/tinkertest"
)

var recordedMake = flag.Bool("recorded.make", false, "make the recordings of testdata/recorded anew")

// recordedSimulations are settings of simulations that are recorded with their trace, by name: every kind of
// weight sync, queue and admission, and every
// framework's rules. Weights change in flight and the queue drops its oldest where nothing else is said.
var recordedSimulations = map[string]string{
	"sync-in-flight-rolls":  "sync.mode=in_flight sync.switch=rolling engines=[{slots:4},{slots:2}]",
	"sync-pause":            "sync.mode=pause",
	"sync-restart":          "sync.mode=restart modelled.sync.prefill_tokens_per_s=4000",
	"sync-drain":            "sync.mode=drain",
	"sync-drain-rolls":      "sync.mode=drain sync.switch=rolling engines=[{slots:4},{slots:2}]",
	"sync-every-3":          "sync.every=3 sync.trainer=blocked",
	"queue-drop":            "queue.policy=drop queue.factor=2",
	"queue-drop-newest":     "queue.policy=drop queue.factor=2 queue.select=newest",
	"queue-drop-version":    "queue.policy=drop queue.factor=2 queue.select=oldest-version",
	"queue-drop-fresh-hold": "queue.policy=drop queue.factor=2 queue.select=fresh queue.hold=0.3 queue.hold_adaptive=true",
	"queue-drop-hold":       "queue.policy=drop queue.hold=0.2 queue.pause_at=1",
	"queue-max":             "queue.policy=max queue.max_staleness=1 queue.factor=2",
	"queue-max-abort":       "queue.policy=max queue.max_staleness=1 queue.abort=true prompts.count=16 prompts.requeue=true",
	"queue-block":           "queue.policy=block queue.factor=2",
	"queue-bounded":         "queue.policy=bounded queue.eta=1",
	"queue-threshold":       "queue.policy=threshold queue.staleness_threshold=0.5",
	"queue-replay":          "queue.policy=replay queue.capacity=16",
	"queue-replay-drift":    "queue.policy=replay queue.capacity=16 queue.evict=drift queue.balance=true prompts.count=16",
	"synchronous":           "schedule=synchronous rollout.oversample=1.5",
	"synchronous-partial":   "schedule=synchronous rollout.oversample=1.5 rollout.partial.interrupt=batch",
	"gang":                  "rollout.start=gang rollout.redundancy=1",
	"filters":               "filter.zero_advantage=true modelled.solve={kind:logistic,from:-1,to:2,steps:40,levels:[-1,0,1]} filter.curriculum.levels=3 rollout.prune.tokens=2500",
	"tools":                 "modelled.tools={calls:2,calls_kind:poisson,time:{mean_s:3,tailness:60},failure_rate:0.1,retries:1} modelled.sandbox={limit:4,start:{mean_s:2},warm:1,failure_rate:0.05} modelled.environment.mean_s=2",
	"controlled":            "control.target=1 queue.factor=3",
	"evaluated":             "modelled.evaluate.occupies=engines evaluate.every=10 evaluate.prompts=24 modelled.sync.time_s=5",
	"failing":               "modelled.train.failure_rate=0.1 modelled.train.step_cv=0.3",
}

// recordedPresets are the frameworks whose rules are recorded by simulation, too.
var recordedPresets = []string{"verl-fully-async", "areal", "prime-rl", "skyrl", "nemo-windowed", "pipelinerl", "slime", "openrlhf", "one-step-off"}

// smallSimulation is what the recorded simulations have in common: steps enough to be diagnosed.
const smallSimulation = "rollout.concurrency=6 rollout.group_size=2 train.batch=4 modelled.train.utilization=1.2 modelled.sync.time_s=4 modelled.sync.load_s=1 steps.warmup=4 steps.measured=40"

// recordedRuns are settings of headway run, by name.
var recordedRuns = map[string]string{
	"run-default":  "trainer.steps=3",
	"run-reverse":  smallRun + " trainer.steps=44 queue.factor=2 environment.service_time.mean_s=0.002",
	"run-sort":     smallRun + " trainer.steps=20 environment.task=sort queue.policy=bounded queue.eta=1",
	"run-addition": smallRun + " trainer.steps=5 environment.task=addition environment.supervised_steps=5 sync.mode=restart",
	"run-code":     smallRun + " trainer.steps=4 environment.task=code sandbox.driver=process sandbox.boundary=none",
}

const smallRun = "rollout.concurrency=12 rollout.group_size=4 train.batch=8 model.layers=1 model.width=16 model.heads=2 evaluate.prompts=8 environment.held_out=8 evaluate.every=10 store.samples_every=10"

// recordedServes have a control plane with a trainer, and with what plays its rollouts, by name.
var recordedServes = map[string]func(t *testing.T, dir string){
	"serve-killed":  serveKilled,
	"serve-tasks":   serveTasks,
	"serve-openenv": serveOpenEnv,
	"serve-hosted":  serveHostedRun,
	"serve-sender":  serveSenderRun,
}

// TestRecord makes the recordings of testdata/recorded anew.
func TestRecord(t *testing.T) {
	if !*recordedMake {
		t.Skip("it makes the recordings that TestRecorded reads: -recorded.make")
	}
	for name, settings := range recordedSimulations {
		t.Run(name, func(t *testing.T) { recordSimulation(t, name, settings) })
	}
	for _, name := range recordedPresets {
		t.Run("preset-"+name, func(t *testing.T) { recordSimulation(t, "preset-"+name, "preset="+name) })
	}
	for name, settings := range recordedRuns {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			first(t, append([]string{"run", "--no-dashboard", "--json", "--dir", dir, "--name", "r"}, setting(settings)...)...)
			pack(t, name, filepath.Join(dir, "r"))
		})
	}
	for name, serve := range recordedServes {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			serve(t, dir)
			pack(t, name, filepath.Join(dir, "runs", "r"))
		})
	}
}

// setting is a list of keys and values as arguments.
func setting(keys string) (arguments []string) {
	for _, key := range strings.Fields(keys) {
		arguments = append(arguments, "--set", key)
	}
	return arguments
}

func recordSimulation(t *testing.T, name, settings string) {
	t.Helper()
	dir := t.TempDir()
	arguments := []string{"simulate", "--json", "--accept-unsettled", "--trace", filepath.Join(dir, "trace.ndjson")}
	first(t, append(append(arguments, setting(smallSimulation)...), setting(settings)...)...)
	pack(t, name, dir)
}

// unread are the parts of a run's directory that the outputs of TestRecorded are not made from, or that say
// which process has it.
var unread = []string{"state/", "weights/", "report.html", "objects/", "serve.json", "trace.ndjson.lock", "trace.ndjson.zst.lock"}

// pack writes what commands read of a run's directory as a recording.
func pack(t *testing.T, name, dir string) {
	t.Helper()
	files := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		within, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		for _, part := range unread {
			if strings.HasPrefix(filepath.ToSlash(within), part) {
				return nil
			}
		}
		files[filepath.ToSlash(within)], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	writeArchive(t, filepath.Join(recordedDir, name+archiveSuffix), files)
}

// serveKilled has workers and a trainer of its own, and is killed once and started again.
func serveKilled(t *testing.T, dir string) {
	const before, after = 6, 40
	engines := fmt.Sprintf("{kind: vllm, name: a, url: %q, slots: 4}, {kind: vllm, name: b, url: %q, slots: 4}", policyServer(t, true).URL(), policyServer(t, false).URL())
	document := fmt.Sprintf(servedDocument, tinyModel(t, servedPolicy.Vocabulary), engines, before+after)
	s := startServe(t, dir, document)
	workers := s.playing()
	s.train(before)
	s.kill()
	workers.Wait()
	s = startServe(t, dir, document, "--json")
	workers = s.playing()
	s.train(after)
	if status := s.outcome(workers); status.Recovery == nil || !status.Ledger.Balanced {
		t.Errorf("it ended with %+v", status)
	}
}

// serveTasks plays a task file with a tool in sandboxes.
func serveTasks(t *testing.T, dir string) {
	const steps = 6
	s := startServe(t, dir, fmt.Sprintf(stageDocument, scriptedModel(t), scriptedServer(t, reader()), taskFile(t), noBoundary, "", steps), "--json")
	s.train(steps)
	s.final()
}

// serveOpenEnv plays on a server that speaks OpenEnv.
func serveOpenEnv(t *testing.T, dir string) {
	const steps = 6
	document := fmt.Sprintf(stageDocument, scriptedModel(t), scriptedServer(t, func(_ *http.Request, chat string) string { return fmt.Sprint(len(chat) % 3) }), "none", noBoundary, "", steps)
	kind := fmt.Sprintf("  kind: openenv\n  turns_max: 2\n  openenv: {url: %q}\n", guessServer(t))
	document = strings.NewReplacer("  kind: tasks\n", kind, "  tasks: {file: none}\n", "", "  tools: [shell, read_file]\n", "", "  on_limit: {out_of_memory: fail}\n", "").Replace(document)
	document = strings.Replace(document, "sandbox: {driver: "+noBoundary+", timeout_s: 30}\n", "", 1)
	s := startServe(t, dir, document, "--json")
	s.train(steps)
	s.final()
}

// guessServer is an OpenEnv environment in which one of three numbers is worth something.
func guessServer(t *testing.T) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { replyJSON(w, map[string]any{"status": "healthy"}) })
	mux.HandleFunc("GET /schema", func(w http.ResponseWriter, _ *http.Request) {
		replyJSON(w, map[string]any{"action": map[string]any{"type": "object", "required": []string{"message"},
			"properties": map[string]any{"message": map[string]any{"type": "string"}}}})
	})
	mux.HandleFunc("GET /ws", guessEpisode)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}

// guessEpisode answers one connection until it is closed.
func guessEpisode(w http.ResponseWriter, r *http.Request) {
	connection, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer connection.CloseNow()
	for {
		kind, text, err := connection.Read(r.Context())
		var asked struct {
			Type string
			Data struct{ Message string }
		}
		if err = errors.Join(err, json.Unmarshal(text, &asked)); err != nil || asked.Type == "close" {
			return
		}
		answer := map[string]any{"observation": map[string]any{"text": "Guess 0, 1 or 2."}, "reward": nil, "done": false}
		if asked.Type == "step" {
			reward := 0.0
			if asked.Data.Message == "1" {
				reward = 1
			}
			answer = map[string]any{"observation": map[string]any{"text": "Thanks."}, "reward": reward, "done": true}
		}
		said, err := json.Marshal(map[string]any{"type": "observation", "data": answer})
		if err == nil {
			err = connection.Write(r.Context(), kind, said)
		}
		if err != nil {
			return
		}
	}
}

// serveHostedRun has a service for its engine and its trainer.
func serveHostedRun(t *testing.T, dir string) {
	service := startHosted(t, tinkertest.Options{Order: tinkertest.Strict})
	s := startServe(t, dir, fmt.Sprintf(hostedDocument, hostedModel(t, hostedConfig), service.url(), "", 8), "--json")
	s.outcome(s.playing())
}

// serveSenderRun has an engine that takes its weights from the trainer's process, by a collective.
func serveSenderRun(t *testing.T, dir string) {
	const steps = 8
	server := newCollectiveServer(t)
	engines := fmt.Sprintf("{kind: sglang, name: a, url: %q, slots: 8, weights: distributed, cache: keep}", server.front.URL)
	s := startServe(t, dir, fmt.Sprintf(servedDocument, tinyModel(t, servedPolicy.Vocabulary), engines, steps), "--json")
	sender := s.startSender("t", "first")
	s.connect()
	workers := s.playing()
	for range steps {
		b := s.leased()
		sender.hold(b.Lease.Version + 1)
		if status, text := s.publishSent(b, "t"); status != http.StatusOK {
			t.Fatalf("publishing version %d: %d %s", b.Lease.Version+1, status, text)
		}
	}
	workers.Wait()
	sender.stop()
	s.final()
}
