package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/headway-rl/headway/cmd/lab/bench/plane"
	"github.com/headway-rl/headway/engine/enginetest"
	"github.com/headway-rl/headway/engine/llamacpp"
	"github.com/headway-rl/headway/engine/sglang"
	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/engine/vllm"
)

// suites are what the conformance suite is run on: the variable that names a running server, and how
// it is spoken to and given weights.
var suites = []struct {
	variable string
	subject  func(t *testing.T, url string) enginetest.Subject
}{
	{"HEADWAY_TEST_VLLM", func(*testing.T, string) enginetest.Subject {
		return enginetest.Subject{Dialect: func() upstream.Dialect { return vllm.New() }, Delivery: upstream.DeliveryDisk}
	}},
	{"HEADWAY_TEST_SGLANG", func(*testing.T, string) enginetest.Subject {
		return enginetest.Subject{Dialect: func() upstream.Dialect { return sglang.New() }, Delivery: upstream.DeliveryDisk}
	}},
	{"HEADWAY_TEST_SGLANG_DISTRIBUTED", distributed},
	{"HEADWAY_TEST_LLAMACPP", restarted},
}

// switches is how often weights change during the random requests.
const switches = 5

// restarted is llama-server, which the suite starts itself on a port of its own: new weights come
// with a restart alone.
func restarted(t *testing.T, _ string) enginetest.Subject {
	port, err := plane.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	program, python := os.Getenv("HEADWAY_TEST_LLAMACPP_BIN"), os.Getenv("HEADWAY_TEST_PYTHON")
	if program == "" || python == "" {
		t.Fatal("HEADWAY_TEST_LLAMACPP_BIN is to name llama-server, and HEADWAY_TEST_PYTHON a Python with gguf")
	}
	file := filepath.Join(t.TempDir(), "model.gguf")
	o := llamacpp.Options{
		Command: append(llamaCommand(program, file, port), "--alias", "{label}"),
		Convert: []string{python, "models/gguf_of.py", "{weights}", file},
		Logf:    t.Logf,
	}
	return enginetest.Subject{URL: fmt.Sprintf("http://127.0.0.1:%d", port), Dialect: func() upstream.Dialect { return llamacpp.New(o) }, Delivery: upstream.DeliveryRestart}
}

// The conformance suite on the server that the environment names: make test-engines.
func TestConformance(t *testing.T) {
	for _, suite := range suites {
		url := os.Getenv(suite.variable)
		if url == "" {
			continue
		}
		directories := directories(t)
		requests := 1000
		if text := os.Getenv("HEADWAY_TEST_REQUESTS"); text != "" {
			var err error
			if requests, err = strconv.Atoi(text); err != nil {
				t.Fatal(err)
			}
		}
		s := suite.subject(t, url)
		if s.URL == "" {
			s.URL, s.Peer = url, os.Getenv(suite.variable+"_PEER")
		}
		s.Weights = directories
		s.Vocabulary, s.Context, s.Requests, s.Slots, s.Switches, s.Seed = 64, 256, requests, 8, switches, 6
		saveReport(t, enginetest.Run(t, s))
		return
	}
	t.Skip("no server is named: make test-engines starts them")
}

// directories are the two models between which weights change.
func directories(t *testing.T) [2]string {
	first, second, ok := strings.Cut(os.Getenv("HEADWAY_TEST_DIRECTORIES"), ":")
	if !ok {
		t.Fatal("HEADWAY_TEST_DIRECTORIES is to name two models in the layout of Hugging Face, with a colon between them")
	}
	return [2]string{first, second}
}

// saveReport hands the figures to the program that started this test.
func saveReport(t *testing.T, report enginetest.Report) {
	path := os.Getenv("HEADWAY_TEST_REPORT")
	if path == "" {
		return
	}
	text, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
}
