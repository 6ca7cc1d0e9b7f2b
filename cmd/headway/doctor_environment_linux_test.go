package main

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/internal/failure"
)

// findingOf is what doctor says under a severity, code and key, empty for nothing.
func findingOf(d examination, keys []string, key string) string {
	at := slices.Index(keys, key)
	if at < 0 {
		return ""
	}
	return d.Findings[at].What
}

func TestDoctorTriesEnvironments(t *testing.T) {
	model, engine := scriptedModel(t), scriptedServer(t, reader())
	noServer := closedAddress(t)
	broken := filepath.Join(t.TempDir(), "broken.jsonl")
	if err := os.WriteFile(broken, []byte("{\"prompt\": \"a\"}\n{\"prompt\": \n{\"no\": 1}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	file := document(t, fmt.Sprintf(stageDocument, model, engine, taskFile(t), noBoundary, "", 3))
	judged := `environment.verifier={kind: tests, test: "test -s n.txt"}`
	cases := []struct {
		name string
		set  []string
		want map[string]string // by severity, code and key
	}{
		{"sound", nil, map[string]string{
			"info tasks environment.tasks.file": "there are 6 tasks to train on, and 0 held out", "info sandbox sandbox.driver": "a sandbox of process with the document's limits started in ",
			"warning sandbox sandbox.driver": "process is no boundary here", "info verifier environment.verifier.kind": "the verifier of kind exact gives a reward of 1 ",
		}},
		{"too few", []string{"sandbox.max=2"}, map[string]string{"warning config sandbox.max": "2 is below rollout.concurrency"}},
		{"tests", []string{judged}, map[string]string{"info verifier environment.verifier.kind": "the verifier of kind tests gives a reward of "}},
		{"broken tasks", []string{"environment.tasks.file=" + broken}, map[string]string{"error tasks environment.tasks.file": broken + ":2: "}},
		{"starlark", []string{`environment.verifier={expression: "response == )"}`}, map[string]string{"error verifier environment.verifier.kind": "expression:1:13"}},
		{"command", []string{`environment.verifier={command: [/no/such/verifier]}`}, map[string]string{"error verifier environment.verifier.kind": "/no/such/verifier"}},
		{"http", []string{`environment.verifier={url: "` + noServer + `", retries: 0}`}, map[string]string{"error verifier environment.verifier.kind": "connection refused"}},
		{"no word of it", []string{"sandbox={driver: process}"}, map[string]string{"error sandbox sandbox.driver": "plain processes have all rights of this user"}},
		{"no root", []string{"sandbox={driver: bwrap, root: /no/such/root}"}, map[string]string{"error sandbox sandbox.driver": ""}},
		{"e2b", []string{fmt.Sprintf("sandbox={driver: e2b, url: %q, key_file: %q}", noServer, taskFile(t))}, map[string]string{"error sandbox sandbox.driver": "has no secret"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			arguments := []string{file}
			for _, set := range c.set {
				arguments = append(arguments, "--set", set)
			}
			_, d, keys := diagnosed(t, arguments...)
			for key, text := range c.want {
				if what := findingOf(d, keys, key); what == "" || !strings.Contains(what, text) {
					t.Errorf("%s: %q, want %q; found %+v", key, what, text, d.Findings)
				}
			}
		})
	}
	cfg := config.Config{Sandbox: config.Sandbox{Driver: "process"}}
	driver, err := parts.DriverOf(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if left, err := driver.List(t.Context(), parts.SandboxOwner(cfg, "doctor")); err != nil || len(left) > 0 {
		t.Errorf("doctor left the sandboxes %v, %v", left, err)
	}
}

// closedAddress is the address of a server that is not there.
func closedAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "http://" + l.Addr().String()
}

// Without probing nothing is asked or started, and files are read all the same.
func TestDoctorNoProbeOfEnvironments(t *testing.T) {
	asked := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the verifier was asked") }))
	defer asked.Close()
	file := document(t, fmt.Sprintf(stageDocument, scriptedModel(t), closedAddress(t), taskFile(t), noBoundary, "", 3))
	_, d, keys := diagnosed(t, file, "--no-probe", "--set", fmt.Sprintf("environment.verifier={url: %q}", asked.URL))
	if findingOf(d, keys, "info tasks environment.tasks.file") == "" || slices.Contains(keys, "info sandbox sandbox.driver") || slices.Contains(keys, "info verifier environment.verifier.kind") {
		t.Errorf("found %q", keys)
	}
}

// An OpenEnv server that is not there, and programs in a sandbox, without a task file.
func TestDoctorTriesOpenEnvAndPrograms(t *testing.T) {
	file := document(t, fmt.Sprintf("model: {path: %s}\nengines: [{kind: vllm, name: a, url: %q, slots: 8}]\nenvironment: {kind: openenv, prompt_tokens_max: 3072, response_tokens_max: 512, openenv: {url: %q}}\ntrainer: {steps: 1}\n", scriptedModel(t), closedAddress(t), closedAddress(t)))
	_, d, keys := diagnosed(t, file)
	if what := findingOf(d, keys, "error openenv-unreachable environment.openenv.url"); !strings.Contains(what, "connection refused") {
		t.Errorf("found %q: %q", keys, what)
	}
	sandboxDriver(t, "bwrap")
	code, d, keys := diagnosed(t, "--set", "environment.task=code")
	if what := findingOf(d, keys, "info sandbox sandbox.driver"); code != failure.ExitDone || !strings.Contains(what, "a sandbox of bwrap") {
		t.Errorf("code %d, found %q: %q", code, keys, what)
	}
}

// What tasks want beyond the run's sandboxes is said once for all of them.
func TestUnmetWants(t *testing.T) {
	dir := t.TempDir()
	for i := range 3 {
		task := filepath.Join(dir, fmt.Sprintf("task-%d", i))
		for name, text := range map[string]string{
			"instruction.md": fmt.Sprintf("do %d", i), "tests/test.sh": "#!/bin/sh\nexit 0\n",
			"task.toml": "[environment]\ndocker_image = \"python:3.12\"\nmemory_mb = 4096\n[verifier]\ntimeout_sec = 900\n",
		} {
			path := filepath.Join(task, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	cfg := config.Config{}
	cfg.Environment = config.Environment{Kind: "tasks", Tasks: config.Tasks{File: dir}, Verifier: config.Verifier{Kind: "tests"}}
	cfg.Sandbox = config.Sandbox{Driver: "bwrap", MemoryMB: 512, CPUs: 1, DiskMB: 256}
	set, err := parts.LoadTasks(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	said := strings.Join(parts.UnmetWants(set, cfg), "\n")
	for _, want := range []string{"wants the image python:3.12", "wants 4096 MiB of memory, and sandbox.memory_mb is 512; so do 2 others", "may test for 900 s, and environment.verifier.timeout_s is 600"} {
		if !strings.Contains(said, want) {
			t.Errorf("lacks %q:\n%s", want, said)
		}
	}
	cfg.Sandbox.Image, cfg.Sandbox.MemoryMB, cfg.Environment.Verifier.TimeoutS = "python:3.12", 4096, 900
	if said := parts.UnmetWants(set, cfg); len(said) > 0 {
		t.Errorf("all of it is met, and yet: %q", said)
	}
}
