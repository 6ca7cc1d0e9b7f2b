package compare

import (
	"strings"
	"testing"

	"github.com/headway-rl/headway/loop/trace"
)

// What workers play is what their environment is called, whatever task an embedded engine would have.
func TestComparedTaskIsTheEnvironments(t *testing.T) {
	for want, text := range map[string]string{
		"remote addition": "trainer: {kind: remote}\nenvironment: {kind: remote, name: addition}\n",
		"embedded sort":   "environment: {task: sort}\n",
	} {
		if _, task, err := settingsOf(trace.Header{Source: "live", Config: text}); err != nil || task != want {
			t.Errorf("it is %q (%v), want %q", task, err, want)
		}
	}
}

// The page of a run shows its document without what the program of sinks.command is told.
func TestViewedDocumentHasNoArguments(t *testing.T) {
	shown := ViewOptions("r", trace.Header{Config: "sinks: {command: [send, s3cr3t]}\n"}).Info.Config
	if strings.Contains(shown, "s3cr3t") || !strings.Contains(shown, "send") {
		t.Errorf("it shows:\n%s", shown)
	}
}
