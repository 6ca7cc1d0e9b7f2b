package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
)

// On a terminal the steps of a long simulation are counted in place, and the line
// is gone at its end; elsewhere a line is printed now and then. A short one shows
// nothing.
func TestStepProgress(t *testing.T) {
	run := func(terminal bool, perLook time.Duration) (string, int) {
		var stderr bytes.Buffer
		now, seen := time.Unix(0, 0), 0
		application := &app.Process{Stderr: &stderr, IsTerminal: func(any) bool { return terminal }, Getenv: func(string) string { return "" }, Now: func() time.Time {
			now = now.Add(perLook)
			return now
		}}
		cfg := sim.Config{Warmup: 100, Measured: 900, Stepped: func(loop.Version) { seen++ }}
		show := newStepProgress(application)
		show.Watch(&cfg)
		for range 1000 {
			cfg.Stepped(1)
		}
		show.Clear()
		return stderr.String(), seen
	}
	text, seen := run(true, 400*time.Millisecond)
	if !strings.Contains(text, "\r480 of 1 000 train steps, 80.0/s, 6 s left") || !strings.HasSuffix(text, "\r\x1b[K") || seen != 1000 {
		t.Errorf("shows %q, %d steps seen", text, seen)
	}
	if text, _ := run(true, time.Millisecond); text != "" {
		t.Errorf("a short simulation shows %q", text)
	}
	text, seen = run(false, time.Second)
	if lines := strings.Count(text, "\n"); lines != 7 || !strings.HasPrefix(text, "32 of 1 000") || strings.ContainsAny(text, "\r\x1b") || seen != 1000 {
		t.Errorf("without a terminal: %d lines %q, %d steps seen", lines, text, seen)
	}
}
