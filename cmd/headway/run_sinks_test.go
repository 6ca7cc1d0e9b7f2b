package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/internal/tfevents"
)

// tracker is a tracking server and a collector of spans, and what they were sent. The real tracking server is
// asked in package sink.
type tracker struct {
	mu     sync.Mutex
	tokens map[string]bool
	run    string
	ended  string
	params map[string]string
	steps  map[int64]bool
	spans  int // of rollouts
}

func (s *tracker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens[r.Header.Get("Authorization")] = true
	body, err := io.ReadAll(r.Body)
	if r.URL.Path == "/v1/traces" { // package sink reads such a message
		s.spans += bytes.Count(body, []byte("invoke_agent reverse"))
	} else if err == nil {
		err = s.track(w, strings.TrimPrefix(r.URL.Path, "/api/2.0/mlflow/"), body)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

func (s *tracker) track(w io.Writer, path string, body []byte) error {
	var said struct {
		Name    string                        `json:"run_name"`
		Status  string                        `json:"status"`
		Params  []struct{ Key, Value string } `json:"params"`
		Metrics []struct {
			Key  string
			Step int64
		} `json:"metrics"`
	}
	if len(body) > 0 && string(body) != "null" {
		if err := json.Unmarshal(body, &said); err != nil {
			return err
		}
	}
	switch path {
	case "experiments/get-by-name":
		fmt.Fprint(w, `{"experiment": {"experiment_id": "7"}}`)
	case "runs/create":
		s.run = said.Name
		fmt.Fprint(w, `{"run": {"info": {"run_id": "11"}}}`)
	case "runs/log-batch":
		for _, p := range said.Params {
			s.params[p.Key] = p.Value
		}
		for _, m := range said.Metrics {
			s.steps[m.Step] = true
		}
		fmt.Fprint(w, `{}`)
	case "runs/update":
		s.ended = said.Status
		fmt.Fprint(w, `{}`)
	default:
		return fmt.Errorf("nobody calls %s", path)
	}
	return nil
}

// Every sink of a document is told of every train step, and the spans of all rollouts where all are wanted.
func TestSinksOfARun(t *testing.T) {
	s := &tracker{tokens: map[string]bool{}, params: map[string]string{}, steps: map[int64]bool{}}
	server := httptest.NewServer(s)
	defer server.Close()
	dir, lines := t.TempDir(), filepath.Join(t.TempDir(), "lines")
	arguments := append([]string{"run", "--no-dashboard", "--steps", "5", "--dir", dir, "--name", "told",
		"--set", fmt.Sprintf("sinks.tensorboard={dir: %q}", filepath.Join(dir, "tb")),
		"--set", fmt.Sprintf("sinks.command=[/bin/sh, -c, 'cat > %s']", lines),
		"--set", fmt.Sprintf("sinks.mlflow={url: %q, experiment: e, token_file: %q}", server.URL, document(t, "mine\n")),
		"--set", fmt.Sprintf("sinks.spans={url: %q, share: 1, token_file: %q}", server.URL, document(t, "ours"))}, small...)
	if code, _, stderr := headway(t, arguments...); code != failure.ExitDone {
		t.Fatalf("code %d\n%s", code, stderr)
	}
	want := []int64{1, 2, 3, 4, 5}
	if got := stepsOfEvents(t, filepath.Join(dir, "tb", "told")); !slices.Equal(got, want) {
		t.Errorf("TensorBoard has steps %v", got)
	}
	if got := stepsOfLines(t, lines); !slices.Equal(got, want) {
		t.Errorf("the program read steps %v", got)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if got := slices.Sorted(maps.Keys(s.steps)); !slices.Equal(got, want) || s.run != "told" || s.ended != "FINISHED" || s.params["train.batch"] != "8" {
		t.Errorf("the tracking server has steps %v of run %q, which ended %q, and batches of %q", got, s.run, s.ended, s.params["train.batch"])
	}
	if len(s.tokens) != 2 || !s.tokens["Bearer mine"] || !s.tokens["Bearer ours"] {
		t.Errorf("it was asked with %v", s.tokens)
	}
	// Five batches of eight.
	if s.spans < 40 {
		t.Errorf("the collector has spans of %d rollouts", s.spans)
	}
}

// A file with anything but one line is refused before the run begins, with the key that names it.
func TestSinksWithoutTheirSecret(t *testing.T) {
	for name, c := range map[string]struct{ set, want string }{
		"no file":    {"sinks.mlflow={url: 'http://127.0.0.1:1', token_file: /nowhere/token}", "sinks.mlflow.token_file"},
		"empty file": {fmt.Sprintf("sinks.spans={url: 'http://127.0.0.1:1', token_file: %q}", document(t, " \n")), "sinks.spans.token_file"},
		"two lines":  {fmt.Sprintf("sinks.mlflow={url: 'http://127.0.0.1:1', token_file: %q}", document(t, "one\ntwo\n")), "has no secret"},
	} {
		dir := t.TempDir()
		code, _, stderr := headway(t, append([]string{"run", "--no-dashboard", "--steps", "5", "--dir", dir, "--name", "r", "--set", c.set}, small...)...)
		if code != failure.ExitUsage || !strings.Contains(stderr, c.want) || strings.Contains(stderr, "one\ntwo") {
			t.Errorf("%s: code %d\n%s", name, code, stderr)
		}
	}
}

// stepsOfEvents are the steps in a directory's event files, each once.
func stepsOfEvents(t *testing.T, dir string) []int64 {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(dir, "events.out.tfevents.*"))
	if len(files) != 1 {
		t.Fatalf("there are the files %v", files)
	}
	file, err := os.Open(files[0])
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	steps := map[int64]bool{}
	for r := tfevents.NewReader(file); ; {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return slices.Sorted(maps.Keys(steps))
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(e.Scalars) > 0 {
			steps[e.Step] = true
		}
	}
}

// stepsOfLines are the steps of the lines that a program was given, in their order.
func stepsOfLines(t *testing.T, path string) (steps []int64) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var line struct {
			Step    int64
			Figures map[string]float64
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil || len(line.Figures) == 0 {
			t.Fatalf("%v in %s", err, lines.Text())
		}
		steps = append(steps, line.Step)
	}
	return steps
}
