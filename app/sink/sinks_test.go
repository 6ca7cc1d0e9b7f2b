package sink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headway-rl/headway/internal/tfevents"
)

var twoSteps = []Step{
	{Step: 1, Time: time.Unix(1000, 5e8), Figures: []Figure{{"loss", 0.5}, {"mine/kl (nats)", 2}}},
	{Step: 2, Time: time.Unix(1001, 0), Figures: []Figure{{"loss", 0.25}}},
}

func TestTensorBoardReadsWhatIsWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs", "run")
	s, err := TensorBoard(dir, time.Unix(999, 0))
	if err == nil {
		err = errors.Join(s.Write(t.Context(), twoSteps), s.Close(t.Context(), true))
	}
	if err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "events.out.tfevents.*"))
	if len(files) != 1 {
		t.Fatalf("there are the files %v", files)
	}
	file, err := os.Open(files[0])
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	r := tfevents.NewReader(file)
	var steps []int64
	var losses []float64
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, scalar := range e.Scalars {
			if scalar.Tag == "loss" {
				steps, losses = append(steps, e.Step), append(losses, scalar.Value)
			}
		}
	}
	if !slices.Equal(steps, []int64{1, 2}) || !slices.Equal(losses, []float64{0.5, 0.25}) {
		t.Errorf("read steps %v with losses %v", steps, losses)
	}
	if _, err := TensorBoard(filepath.Join(files[0], "below"), time.Now()); err == nil {
		t.Error("a directory within a file is no error")
	}
}

func TestAProgramReadsLines(t *testing.T) {
	dir := t.TempDir()
	out, log := filepath.Join(dir, "out"), filepath.Join(dir, "log")
	s, err := Program([]string{"/bin/sh", "-c", "echo begun; cat >" + out}, log)
	if err == nil {
		err = errors.Join(s.Write(t.Context(), twoSteps[:1]), s.Write(t.Context(), twoSteps[1:]), s.Close(t.Context(), true))
	}
	if err != nil {
		t.Fatal(err)
	}
	text, _ := os.ReadFile(out)
	want := `{"figures":{"loss":0.5,"mine/kl (nats)":2},"step":1,"time":1000.5}` + "\n" + `{"figures":{"loss":0.25},"step":2,"time":1001}` + "\n"
	if said, _ := os.ReadFile(log); string(text) != want || string(said) != "begun\n" {
		t.Errorf("it read\n%sand said %q", text, said)
	}
}

func TestAProgramThatFails(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	if _, err := Program([]string{"/no/such/program"}, log); err == nil || !strings.Contains(err.Error(), "/no/such/program") {
		t.Errorf("a program that is not there: %v", err)
	}
	s, err := Program([]string{"/bin/sh", "-c", "echo no key >&2; exit 3"}, log)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(t.Context(), true); err == nil || !strings.Contains(err.Error(), "exit status 3: no key") {
		t.Errorf("its end is %v", err)
	}
	if err := s.Write(t.Context(), twoSteps); err == nil {
		t.Error("what has ended takes figures")
	}
	hangs, err := Program([]string{"/bin/sh", "-c", "exec sleep 1000"}, log)
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := hangs.Close(ended, true); err == nil || !strings.Contains(err.Error(), "did not end") {
		t.Errorf("one that hangs ends with %v", err)
	}
}

// A server that refuses is a fault; the real one is asked in TestMLflowServer.
func TestMLflowThatRefuses(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		if r.Header.Get("Authorization") != "Bearer secret" {
			t.Errorf("asked with %q", r.Header.Get("Authorization"))
		}
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(map[string]string{"error_code": "PERMISSION_DENIED", "message": "not yours"})
	}))
	defer server.Close()
	now := func() time.Time { return time.Unix(1000, 0) }
	s, err := MLflow(MLflowOptions{URL: server.URL, Experiment: "e", Run: "r", Token: "secret", Now: now})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Write(t.Context(), twoSteps); err == nil || !strings.Contains(err.Error(), "HTTP 403 PERMISSION_DENIED not yours") || asked != 1 {
		t.Errorf("after %d calls: %v", asked, err)
	}
	if err := s.Close(t.Context(), true); err != nil || asked != 1 {
		t.Errorf("a run that was never made ends with %v after %d calls", err, asked)
	}
	if _, err := MLflow(MLflowOptions{URL: "mlflow:5000", Now: now}); err == nil {
		t.Error("an address without a scheme is taken")
	}
}

func TestMLflowNames(t *testing.T) {
	for name, want := range map[string]string{
		"off_policy/a b(c)é": "off_policy/a b_c__", "actor//kl": "actor/kl", "/a/": "a", "../a/./b": "__/a/b", "/": "_", "": "_", strings.Repeat("n", 300): strings.Repeat("n", 250),
	} {
		if got := mlflowName(name); got != want {
			t.Errorf("%q is named %q", name, got)
		}
	}
}

// A figure that the server does not take is left out, and said once. The others come.
func TestMLflowLeavesAFigureOut(t *testing.T) {
	var took, said []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct{ Metrics []struct{ Key string } }
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil && r.Method == http.MethodPost {
			t.Error(err)
		}
		for _, m := range in.Metrics {
			if m.Key == "odd" {
				w.WriteHeader(http.StatusBadRequest)
				fmt.Fprint(w, `{"error_code":"INVALID_PARAMETER_VALUE","message":"odd"}`)
				return
			}
		}
		for _, m := range in.Metrics {
			took = append(took, m.Key)
		}
		fmt.Fprint(w, `{"experiment":{"experiment_id":"1"},"run":{"info":{"run_id":"x"}}}`)
	}))
	defer server.Close()
	s, err := MLflow(MLflowOptions{URL: server.URL, Experiment: "e", Run: "r", Now: time.Now, Logf: func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }})
	if err != nil {
		t.Fatal(err)
	}
	step := Step{Step: 1, Time: time.Now(), Figures: []Figure{{"a", 1}, {"odd", 1}, {"b", 1}}}
	if err := errors.Join(s.Write(t.Context(), []Step{step}), s.Write(t.Context(), []Step{step})); err != nil {
		t.Error(err)
	}
	if !slices.Equal(took, []string{"a", "b", "a", "b"}) || len(said) != 1 || !strings.Contains(said[0], `"odd" is left out`) {
		t.Errorf("it took %q and said %q", took, said)
	}
	if err := s.Write(t.Context(), []Step{{Step: 2, Time: time.Now(), Figures: []Figure{{"odd", 1}}}}); err != nil {
		t.Error(err)
	}
}

// Ctrl-C at the terminal is for the run, which closes its program's input when the last step has come.
func TestAProgramIsApart(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	s, err := Program([]string{"/bin/sh", "-c", "ps -o pgid= -p $$ >" + out + "; cat >/dev/null"}, filepath.Join(t.TempDir(), "log"))
	if err == nil {
		err = s.Close(t.Context(), true)
	}
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out)
	if group := strings.TrimSpace(string(text)); err != nil || group == "" || group == strconv.Itoa(syscall.Getpgrp()) {
		t.Errorf("the program is of the group %q, as the test: %v", group, err)
	}
}

// TestMLflowServer logs to the real server at HEADWAY_MLFLOW and reads back what it has.
func TestMLflowServer(t *testing.T) {
	address := os.Getenv("HEADWAY_MLFLOW")
	if address == "" {
		t.Skip("HEADWAY_MLFLOW names no tracking server: make test-sinks starts one")
	}
	name := "run " + time.Now().Format(time.RFC3339Nano)
	params := map[string]string{"train.batch": "128", "long": strings.Repeat("x", 600)}
	for i := range 120 {
		params["many."+strings.Repeat("k", i%7)+string(rune('a'+i%26))+strings.Repeat("z", i/26)] = "1"
	}
	s, err := MLflow(MLflowOptions{URL: address, Experiment: "headway tests", Run: name, Params: params, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	var steps []Step
	for i := range int64(300) {
		figures := []Figure{{"loss", 1 / float64(i+1)}, {"mine/kl", 2}, {"a", 1}, {"b", 2}, {"c", 3}}
		steps = append(steps, Step{Step: i, Time: time.Now(), Figures: figures})
	}
	if err := errors.Join(s.Write(t.Context(), steps[:100]), s.Write(t.Context(), steps[100:]), s.Close(t.Context(), true)); err != nil {
		t.Fatal(err)
	}
	m := s.(*mlflow)
	var got struct {
		Run struct {
			Info struct {
				Status string `json:"status"`
				Name   string `json:"run_name"`
			} `json:"info"`
			Data struct {
				Metrics []struct {
					Key   string  `json:"key"`
					Value float64 `json:"value"`
					Step  int64   `json:"step"`
				} `json:"metrics"`
				Params []struct{ Key, Value string } `json:"params"`
			} `json:"data"`
		} `json:"run"`
	}
	if err := m.call(t.Context(), http.MethodGet, "runs/get?run_id="+m.run, nil, &got); err != nil {
		t.Fatal(err)
	}
	if got.Run.Info.Status != "FINISHED" || got.Run.Info.Name != name || len(got.Run.Data.Metrics) != 5 || len(got.Run.Data.Params) != len(params) {
		t.Errorf("the server has %+v, %d metrics, %d parameters", got.Run.Info, len(got.Run.Data.Metrics), len(got.Run.Data.Params))
	}
	var history struct {
		Metrics []struct {
			Value float64 `json:"value"`
			Step  int64   `json:"step"`
		} `json:"metrics"`
	}
	if err := m.call(t.Context(), http.MethodGet, "metrics/get-history?metric_key=loss&max_results=1000&run_id="+m.run, nil, &history); err != nil {
		t.Fatal(err)
	}
	if len(history.Metrics) != 300 {
		t.Errorf("it has %d losses of 300", len(history.Metrics))
	}
}

// TestStartsWithinASecond: each process that begins has an event file of its own.
func TestStartsWithinASecond(t *testing.T) {
	dir, now := t.TempDir(), time.Unix(1_700_000_000, 0)
	for n := range 3 {
		s, err := TensorBoard(dir, now)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		if files, err := os.ReadDir(dir); err != nil || len(files) != n+1 {
			t.Errorf("%d files after %d starts: %v", len(files), n+1, err)
		}
	}
}
