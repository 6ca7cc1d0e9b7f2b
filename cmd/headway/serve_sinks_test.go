package main

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headway-rl/headway/internal/failure"
)

// A control plane of embedded engines tells what a run tells: the spans of its rollouts, and that the machine
// does not keep the pace it was given.
func TestServeTellsSpansAndPaces(t *testing.T) {
	s := &tracker{tokens: map[string]bool{}, params: map[string]string{}, steps: map[int64]bool{}}
	server := httptest.NewServer(s)
	defer server.Close()
	arguments := append([]string{"serve", "--dir", t.TempDir(), "--name", "told", "--listen", "127.0.0.1:0", "--steps", "5",
		"--set", "trainer.kind=embedded", "--set", "trainer.step_s=0.000000001", "--set", fmt.Sprintf("sinks.spans={url: %q, share: 1}", server.URL)}, small...)
	code, _, stderr := headway(t, arguments...)
	if code != failure.ExitDone || !strings.Contains(stderr, "this machine does not keep that pace") || !strings.Contains(stderr, "trainer.step_s") {
		t.Errorf("code %d, and no word of the pace\n%s", code, stderr)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// Five batches of eight.
	if s.spans < 40 {
		t.Errorf("the collector has spans of %d rollouts\n%s", s.spans, stderr)
	}
}
