package main

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/env/episode"
	"github.com/headway-rl/headway/env/episode/player"
	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/taskset"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/train/batch/batchtest"
)

// stageDocument is a run whose rollouts are played by the control plane: a task file, a tool in a
// sandbox, and a verdict.
const stageDocument = `
model: {path: %s}
engines: [{kind: vllm, name: a, url: %q, slots: 8}]
environment:
  kind: tasks
  prompt_tokens_max: 3072
  response_tokens_max: 512
  tasks: {file: %s}
  tools: [shell, read_file]
  on_limit: {out_of_memory: fail}
sandbox: {driver: %s, timeout_s: 30%s}
rollout: {group_size: 4}
train: {batch: 8}
queue: {policy: bounded, eta: 1}
trainer: {steps: %d}
store: {samples_every: 0}
failures: {max_attempts: 20}
`

// noBoundary is the driver of plain processes in a stageDocument, with the word that a run takes for it.
const noBoundary = "process, boundary: none"

// sandboxOf is a driver as a stageDocument has it.
func sandboxOf(driver string) string {
	if driver == "process" {
		return noBoundary
	}
	return driver
}

// stageTasks is how many tasks there are; the answer of task i is taskAnswer(i), which lies in a file.
const stageTasks = 6

func taskAnswer(i int) string { return fmt.Sprint(1000 + 37*i) }

func taskFile(t *testing.T) string {
	t.Helper()
	var text strings.Builder
	for i := range stageTasks {
		fmt.Fprintf(&text, `{"id": "t%d", "prompt": "task %d: what is in n.txt?", "answer": %q, "files": {"n.txt": %q}}`+"\n", i, i, taskAnswer(i), taskAnswer(i)+"\n")
	}
	path := filepath.Join(t.TempDir(), "tasks.jsonl")
	if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// reader is a policy that reads the file by a tool and says what is in it, every third time something else.
func reader() func(*http.Request, string) string {
	var answers atomic.Int64
	return func(_ *http.Request, chat string) string {
		at := strings.LastIndex(chat, toolTurn)
		if at < 0 {
			return toolCallText("shell", `{"command": "cat n.txt"}`)
		}
		if answers.Add(1)%3 == 0 {
			return "I cannot say"
		}
		said, _, _ := strings.Cut(chat[at+len(toolTurn):], "\x00")
		return strings.Fields(said)[0]
	}
}

// checkPlayedBatches holds every reward that was trained on against what was said for it.
func checkPlayedBatches(t *testing.T, batches []*batchtest.Tensors) {
	t.Helper()
	right := 0
	for _, b := range batches {
		for i := range b.Rollouts() {
			chat := tokensAsBytes(b.Tokens[b.Offsets[i]:b.Offsets[i+1]])
			var task int
			if _, err := fmt.Sscanf(chat, "\n[user]task %d:", &task); err != nil {
				t.Fatalf("a rollout was trained on that is of no task: %q", chat)
			}
			said := strings.TrimSuffix(chat[strings.LastIndex(chat, assistantTurn)+len(assistantTurn):], "\x00")
			want := float32(0)
			if said == taskAnswer(task) {
				want = 1
				right++
			}
			if b.Rewards[i] != want || !strings.Contains(chat, toolTurn) {
				t.Errorf("lease %d, rollout %d: the reward of %q for task %d is %g, want %g", b.Lease.Lease, i, said, task, b.Rewards[i], want)
			}
		}
	}
	if right == 0 {
		t.Error("nothing that was trained on is right: was any file read?")
	}
}

// sandboxDriver is a driver that can make sandboxes here, with those of a run that are left.
func sandboxDriver(t *testing.T, name string) sandbox.Driver {
	t.Helper()
	driver, err := parts.DriverOf(config.Config{Sandbox: config.Sandbox{Driver: name}})
	if err == nil {
		_, err = driver.Check(context.Background())
	}
	if err != nil {
		if strings.Contains(os.Getenv("HEADWAY_SANDBOXES"), name) {
			t.Fatal(err)
		}
		t.Skipf("no sandboxes of %s here: %v", name, err)
	}
	return driver
}

func sandboxesLeft(t *testing.T, driver sandbox.Driver, dir string) []sandbox.ID {
	t.Helper()
	left, err := driver.List(t.Context(), parts.SandboxOwner(config.Config{}, filepath.Join(dir, "runs", "r")))
	if err != nil {
		t.Fatal(err)
	}
	return left
}

// playedRecords are the records of a run's episodes.
func playedRecords(t *testing.T, dir string) (records []episode.Record) {
	t.Helper()
	if err := player.ReadLog(filepath.Join(dir, "runs", "r"), func(r episode.Record) error {
		records = append(records, r)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return records
}

// TestServeTasks plays a task file to the end of a run, in every kind of sandbox that is here.
func TestServeTasks(t *testing.T) {
	for _, name := range []string{"process", "bwrap", "runsc"} {
		t.Run(name, func(t *testing.T) {
			const steps = 3
			driver, dir := sandboxDriver(t, name), t.TempDir()
			url := scriptedServer(t, reader())
			s := startServe(t, dir, fmt.Sprintf(stageDocument, scriptedModel(t), url, taskFile(t), sandboxOf(name), ", reuse: reset, warm_min: 2", steps))
			batches := s.train(steps)
			checkPlayedBatches(t, batches)
			status := s.status()
			e := status.Environment
			if e == nil || e.Tasks != stageTasks || e.Episodes.Scored < 8*steps || e.Episodes.Failed > 0 || e.Sandboxes == nil || e.Sandboxes.Driver != name || e.TaskCounts == nil || len(e.TaskCounts.Levels) != 1 || e.TaskCounts.Levels[0].Attempts < 1 || e.Verifier == nil || e.Verifier.Kind != "exact" {
				t.Errorf("the status says %+v", e)
			}
			_, metrics := s.call("/metrics", "", nil)
			for _, want := range []string{`headway_episodes_total{end="scored"}`, `headway_episode_seconds_total{part="tool"}`, "headway_sandbox_created_total"} {
				if !strings.Contains(string(metrics), want) {
					t.Errorf("/metrics has no %s", want)
				}
			}
			_ = s.cmd.Process.Signal(os.Interrupt)
			<-s.ended
			if left := sandboxesLeft(t, driver, dir); len(left) > 0 {
				t.Errorf("a run that has ended left the sandboxes %v\n%s", left, s.text())
			}
			checkPlayedRecords(t, playedRecords(t, dir), e)
			checkPlayedCounts(t, dir, playedRecords(t, dir))
			checkPlayedTimeline(t, filepath.Join(dir, "runs", "r"))
			checkPlayedSessions(t, filepath.Join(dir, "runs", "r"), playedRecords(t, dir))
		})
	}
}

// checkPlayedCounts holds the counts of tasks against the records of their episodes.
func checkPlayedCounts(t *testing.T, dir string, records []episode.Record) {
	t.Helper()
	counts, err := taskset.OpenCounts(filepath.Join(dir, "runs", "r", "task_counts.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer counts.Close()
	attempts, rewards := map[string]int64{}, map[string]float64{}
	for _, r := range records {
		if r.Failure == episode.Unwanted {
			continue
		}
		attempts[r.Task]++
		if r.Reward != nil {
			rewards[r.Task] += *r.Reward
		}
	}
	byTask := map[string]taskset.Count{}
	for _, c := range counts.Hardest(counts.Len(), 1) {
		byTask[c.Task] = c
	}
	for task, n := range attempts {
		count, ok := byTask[task]
		if _, scored := rewards[task]; !scored {
			continue // the counts tell of those that have a reward alone
		}
		if !ok || count.Attempts != n || float64(count.Solved) != rewards[task] {
			t.Errorf("%s was played %d times and solved %g times, and the counts have %+v", task, n, rewards[task], count)
		}
	}
}

// checkPlayedRecords holds the records of a run's episodes against its status, and their spans against
// one another.
func checkPlayedRecords(t *testing.T, records []episode.Record, e *protocol.EnvironmentStatus) {
	t.Helper()
	scored, boxes := 0, map[string]bool{}
	for _, r := range records {
		at, kinds := int64(0), map[episode.Kind]bool{}
		for _, span := range r.Spans {
			if span.StartNS < at || span.EndNS < span.StartNS {
				t.Fatalf("%s: the spans overlap: %+v", r.Rollout, r.Spans)
			}
			at, kinds[span.Kind] = span.EndNS, true
		}
		if r.Reward == nil {
			continue
		}
		scored++
		boxes[r.Box] = true
		if r.Turns != 2 || !kinds[episode.Model] || !kinds[episode.Tool] || r.Box == "" || !strings.HasPrefix(r.Task, "t") {
			t.Errorf("recorded %+v", r)
		}
		// A turn reads what was said and seen before it.
		if n := r.Tokens; len(n) != 2 || n[0].Output < 1 || n[1].Output < 1 || n[1].Input <= n[0].Input+n[0].Output {
			t.Errorf("%s: the turns have the tokens %+v", r.Rollout, n)
		}
	}
	if scored < int(e.Episodes.Scored) || len(boxes) == 0 {
		t.Errorf("%d records of scored rollouts in %d sandboxes, and the status counted %d", scored, len(boxes), e.Episodes.Scored)
	}
}

// checkPlayedSessions has the run's episodes as sessions of others, with the tokens that were recorded.
func checkPlayedSessions(t *testing.T, runDir string, records []episode.Record) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "rollouts.jsonl")
	code, _, stderr := headway(t, "workload", runDir, "--to", "rollouts", "--out", out)
	if code != failure.ExitDone {
		t.Fatalf("code %d: %s", code, stderr)
	}
	var told struct {
		Format          string
		Sessions, Calls int
		Generated       struct{ Mean float64 } `json:"generated_tokens_per_session"`
	}
	headwayJSON(t, &told, "workload", out, "--json")
	sessions, tokens := 0, 0
	for _, r := range records {
		if r.Reward == nil || !strings.HasPrefix(r.Rollout, "g") {
			continue
		}
		sessions++
		for _, turn := range r.Tokens {
			tokens += turn.Output
		}
	}
	if told.Format != "rollouts" || told.Sessions != sessions || told.Calls != 2*sessions || math.Abs(told.Generated.Mean*float64(sessions)-float64(tokens)) > 0.5 {
		t.Errorf("%d sessions with %d tokens were recorded, and others read %+v", sessions, tokens, told)
	}
}

// checkPlayedTimeline draws the run.
func checkPlayedTimeline(t *testing.T, runDir string) {
	t.Helper()
	drawing := filepath.Join(t.TempDir(), "timeline.json")
	if code, _, stderr := headway(t, "replay", runDir, "--timeline", drawing, "--timeline-steps", "0", "--timeline-from", "0"); code != failure.ExitDone {
		t.Fatalf("code %d: %s", code, stderr)
	}
	text, err := os.ReadFile(drawing)
	if err != nil || !strings.Contains(string(text), `"cat":"environment","name":"tool","args":{"tool":"shell"}`) {
		t.Errorf("no tool is drawn: %v", err)
	}
}
