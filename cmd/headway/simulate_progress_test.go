package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/sim"
)

// On a terminal the steps of a long simulation are counted in place, and the line
// is gone at its end; a short one, and anything but a terminal, shows nothing.
func TestStepProgress(t *testing.T) {
	run := func(terminal bool, perLook time.Duration) (string, int) {
		var stderr bytes.Buffer
		now, seen := time.Unix(0, 0), 0
		application := &app{Stderr: &stderr, IsTerminal: func(any) bool { return terminal }, Now: func() time.Time {
			now = now.Add(perLook)
			return now
		}}
		cfg := sim.Config{Observe: func(loop.Event, int64, int64, []loop.Action) { seen++ }}
		show := newStepProgress(application, config.Steps{Warmup: 100, Measured: 900})
		show.watch(&cfg)
		for range 1000 {
			cfg.Observe(loop.Event{Kind: loop.TrainStepEnded}, 0, 0, nil)
			cfg.Observe(loop.Event{Kind: loop.Tick}, 0, 0, nil)
		}
		show.end()
		return stderr.String(), seen
	}
	text, seen := run(true, 400*time.Millisecond)
	if !strings.Contains(text, "\r480 of 1000 train steps") || !strings.HasSuffix(text, "\r\x1b[K") || seen != 2000 {
		t.Errorf("shows %q, %d events seen", text, seen)
	}
	if text, _ := run(true, time.Millisecond); text != "" {
		t.Errorf("a short simulation shows %q", text)
	}
	if text, seen := run(false, time.Second); text != "" || seen != 2000 {
		t.Errorf("without a terminal: %q, %d events seen", text, seen)
	}
}
