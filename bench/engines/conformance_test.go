package main

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/headway-rl/headway/engine/enginetest"
	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/engine/vllm"
)

// suites are what the conformance suite is run on: the variable that names a running server, how it
// is spoken to, and how its weights change.
var suites = []struct {
	variable string
	dialect  func() upstream.Dialect
	road     upstream.Road
}{
	{"HEADWAY_TEST_VLLM", func() upstream.Dialect { return vllm.New() }, upstream.RoadDisk},
}

// The conformance suite on the server that the environment names: make test-engines.
func TestConformance(t *testing.T) {
	for _, s := range suites {
		url := os.Getenv(s.variable)
		if url == "" {
			continue
		}
		first, second, ok := strings.Cut(os.Getenv("HEADWAY_TEST_WEIGHTS"), ":")
		if !ok {
			t.Fatal("HEADWAY_TEST_WEIGHTS is to name two models, with a colon between them")
		}
		requests := 1000
		if text := os.Getenv("HEADWAY_TEST_REQUESTS"); text != "" {
			var err error
			if requests, err = strconv.Atoi(text); err != nil {
				t.Fatal(err)
			}
		}
		report := enginetest.Run(t, enginetest.Subject{
			URL: url, Peer: os.Getenv(s.variable + "_PEER"), Dialect: s.dialect, Road: s.road, Weights: [2]string{first, second},
			Vocabulary: 64, Context: 256, Requests: requests, Slots: 8, Switches: 5, Seed: 6,
		})
		saveReport(t, report)
		return
	}
	t.Skip("no server is named: make test-engines starts them")
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
