package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/headway-rl/headway/api"
	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/internal/failure"
)

// topOf is a view that has looked a few times.
func topOf(statuses ...protocol.Status) (*topView, *time.Time) {
	now := time.Unix(1000, 0)
	v := newTopView("http://127.0.0.1:7070", func() time.Time { return now }, 1, true)
	v.ask = func() tea.Msg { return nil }
	for _, s := range statuses {
		v.take(s)
	}
	return v, &now
}

func press(v *topView, keys ...string) (left bool) {
	for _, k := range keys {
		message := tea.KeyPressMsg{Text: k, Code: []rune(k)[0]}
		if _, command := v.Update(message); command != nil {
			_, left = command().(tea.QuitMsg)
		}
	}
	return left
}

func TestTopShowsQueueHealthFirst(t *testing.T) {
	later := busyStatus()
	later.Throughput.ProductionRolloutsPerS = 62
	v, _ := topOf(busyStatus(), later)
	v.width, v.height = 100, 30
	text := v.text()
	lines := strings.Split(text, "\n")
	for i, want := range []string{"reverse · running · version 17 of 200 train steps", "engine e1 is lost, of 2; worker w3 is silent", "the engines bind", "made         62.0  rollouts/s", "of use       30.0", "queue          16  of 32 groups"} {
		if !strings.HasPrefix(lines[i], want) {
			t.Errorf("line %d is %q, want it to begin with %q", i+1, lines[i], want)
		}
	}
	for _, want := range []string{"▁█", "p95 3", "11 700 trained", "e1", "lost", "q leaves"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "\x1b") {
		t.Errorf("colours although none are wanted:\n%q", text)
	}
}

// However small the terminal is, no line is wider and there are no more of them.
func TestTopFitsTheTerminal(t *testing.T) {
	s := busyStatus()
	for range 40 {
		s.Engines = append(s.Engines, s.Engines[0])
	}
	s.Stall = &protocol.Stall{SinceS: 100, Findings: []protocol.Finding{{Code: "no_trainer", Message: strings.Repeat("no trainer has ever connected ", 5)}}}
	for _, size := range [][2]int{{120, 50}, {80, 24}, {40, 12}, {10, 3}} {
		v, _ := topOf(s)
		v.Update(tea.WindowSizeMsg{Width: size[0], Height: size[1]})
		lines := strings.Split(v.text(), "\n")
		if len(lines) > v.height {
			t.Errorf("%d lines in a terminal of %d", len(lines), v.height)
		}
		for _, line := range lines {
			if n := len([]rune(line)); n > v.width {
				t.Errorf("%d cells in a terminal of %d: %q", n, v.width, line)
			}
		}
	}
}

func TestTopKeys(t *testing.T) {
	v, _ := topOf(busyStatus())
	v.width, v.height = 100, 30
	press(v, "s")
	text := v.text()
	if strings.Index(text, "e1 ") > strings.Index(text, "e0 ") {
		t.Errorf("the engine that lags is not first:\n%s", text)
	}
	press(v, "p")
	if _, command := v.Update(due{}); command == nil || !strings.Contains(v.text(), "PAUSED") {
		t.Errorf("it does not say that it is paused, or never looks again:\n%s", v.text())
	}
	press(v, "p", "?")
	if !strings.Contains(v.text(), "scroll engines") {
		t.Errorf("no keys in\n%s", v.text())
	}
	if !press(v, "q") {
		t.Error("q does not leave")
	}
}

// A server that goes away leaves the last state, and since when.
func TestTopWithoutAnAnswer(t *testing.T) {
	v, now := topOf(busyStatus())
	v.width = 100
	*now = now.Add(90 * time.Second)
	v.Update(looked{err: errors.New("nothing listens")})
	if text := v.text(); !strings.Contains(text, "no answer from http://127.0.0.1:7070 for 1m30s: nothing listens") || !strings.Contains(text, "rollouts/s") {
		t.Errorf("got\n%s", text)
	}
	v.Update(looked{status: busyStatus()})
	if strings.Contains(v.text(), "no answer") {
		t.Errorf("it answers again:\n%s", v.text())
	}
}

// What is no terminal gets the status again and again; nobody there is an error at once.
func TestTopElsewhere(t *testing.T) {
	var out, diagnostics bytes.Buffer
	if code := Main([]string{"top", "http://127.0.0.1:1"}, strings.NewReader(""), &out, &diagnostics); code != failure.ExitFailure || !strings.Contains(diagnostics.String(), "nothing listens") || !strings.Contains(diagnostics.String(), "headway top http://HOST:PORT") {
		t.Errorf("exit %d: %s", code, diagnostics.String())
	}
	diagnostics.Reset()
	if code := Main([]string{"top", serveStatus(t, busyStatus(), api.Options{}), "--every", "0"}, strings.NewReader(""), &out, &diagnostics); code != failure.ExitUsage || !strings.Contains(diagnostics.String(), "--every 0") {
		t.Errorf("exit %d: %s", code, diagnostics.String())
	}
}
