package main

import (
	"bytes"
	"io"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/record"
	"github.com/headway-rl/headway/drive/live"
)

// console is a stream that several goroutines may use, and that may be slow.
type console struct {
	mu   sync.Mutex
	text bytes.Buffer
	gate chan struct{} // when not nil, every write waits for it to be closed
}

func (c *console) Write(p []byte) (int, error) {
	if c.gate != nil {
		<-c.gate
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.Write(p)
}

func (c *console) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.String()
}

// at is a state at a train step, everything else made up.
func at(step int64) record.Progress {
	return record.Progress{Step: step, Steps: 500, Version: step - 1, Reward: 0.5, Accuracy: 0.25, AccuracyStep: 100, Staleness: 3, PQS: 2, IQS: 1,
		TrainerIdle: 0.04, RolloutIdle: 0.01, ClipFraction: 0.02, TokensPerS: 26410, QueueGroups: 3, QueueCapacity: 8,
		Rates: live.Rates{Steps: 4, Production: 1200, ConsumptionWall: 900, Dropped: 300}, Active: 64, Slots: 64,
		Elapsed: 20 * time.Second, ETA: 72 * time.Second}
}

// plainApp is an app whose standard error is no terminal, with a clock of its own.
func plainApp(stderr io.Writer, now func() time.Time) *app.Process {
	return &app.Process{Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: stderr, Now: now,
		IsTerminal: func(any) bool { return false }, Getenv: func(string) string { return "" }}
}

// Lines come at most every five seconds, but the first and the last state always.
func TestLines(t *testing.T) {
	var printed bytes.Buffer
	now := time.Unix(0, 0)
	on := newLines(plainApp(&printed, func() time.Time { return now }), "reverse, seed 1")
	for step := int64(1); step <= 12; step++ {
		on.show(at(step))
		now = now.Add(time.Second)
	}
	on.note("stopping")
	on.Close()
	want := `reverse, seed 1
step   1/500  reward 0.500  held-out 0.250@100  staleness 3.00 = PQS 2.00 + IQS 1.00  idle trainer 4.0 % rollout 1.0 %  clip 2.0 %  rollouts/s 1 200 made 900 trained  26 410 tokens/s  ETA 1m12s
step   6/500  reward 0.500  held-out 0.250@100  staleness 3.00 = PQS 2.00 + IQS 1.00  idle trainer 4.0 % rollout 1.0 %  clip 2.0 %  rollouts/s 1 200 made 900 trained  26 410 tokens/s  ETA 1m12s
step  11/500  reward 0.500  held-out 0.250@100  staleness 3.00 = PQS 2.00 + IQS 1.00  idle trainer 4.0 % rollout 1.0 %  clip 2.0 %  rollouts/s 1 200 made 900 trained  26 410 tokens/s  ETA 1m12s
stopping
step  12/500  reward 0.500  held-out 0.250@100  staleness 3.00 = PQS 2.00 + IQS 1.00  idle trainer 4.0 % rollout 1.0 %  clip 2.0 %  rollouts/s 1 200 made 900 trained  26 410 tokens/s  ETA 1m12s
`
	if printed.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", printed.String(), want)
	}
}

// What is not known is left out, never printed as NaN.
func TestLineLeavesOutTheUnknown(t *testing.T) {
	unknown := math.NaN()
	p := record.Progress{Step: 1, Steps: 9, Reward: unknown, Accuracy: unknown, Staleness: unknown, TrainerIdle: unknown, ClipFraction: unknown, TokensPerS: unknown}
	if got := progressLine(p); got != "step 1/9" {
		t.Errorf("printed %q", got)
	}
	view := liveView{width: 80, styles: stylesOf(true)}
	next, _ := view.Update(p)
	if text := next.(liveView).text(); strings.Contains(text, "NaN") {
		t.Errorf("the view shows\n%s", text)
	}
}

// A screen that stands still holds nothing up, and the last state wins.
func TestProgressNeverBlocks(t *testing.T) {
	slow := &console{gate: make(chan struct{})}
	a := plainApp(slow, func() time.Time { return time.Unix(0, 0) })
	a.Getenv = func(name string) string { return map[string]string{"TERM": "dumb"}[name] }
	a.IsTerminal = func(any) bool { return true }
	v := newProgressView(a, progressOptions{}, "")
	for step := int64(1); step <= 10_000; step++ {
		v.Update(at(step))
		v.Message("note")
	}
	close(slow.gate)
	v.Close()
	v.Close()
	printed := slow.String()
	if _, after, found := strings.Cut(printed, "step 10000/500"); !found || strings.Contains(after, "step ") {
		t.Errorf("the last state is not the last shown:\n%s", printed)
	}
	if lines := strings.Count(printed, "\n"); lines > notesMax+10 {
		t.Errorf("%d lines were kept for a screen that stood still", lines)
	}
}

// The first Ctrl-C stops, the second aborts; before there is a run it does nothing.
func TestInterruptStopsThenAborts(t *testing.T) {
	v := newProgressView(plainApp(io.Discard, time.Now), progressOptions{}, "")
	defer v.Close()
	var calls []string
	v.interrupt()
	v.onInterrupt(func() { calls = append(calls, "stop") }, func() { calls = append(calls, "abort") })
	v.interrupt()
	v.interrupt()
	if got := strings.Join(calls, " "); got != "stop abort" {
		t.Errorf("called %q", got)
	}
}

func TestLiveViewPicture(t *testing.T) {
	view := tea.Model(liveView{intro: "reverse, seed 1", width: widthDefault, styles: stylesOf(true)})
	if text := view.(liveView).text(); text != "reverse, seed 1\nwaiting for the first train step\n" {
		t.Errorf("before the first step:\n%s", text)
	}
	for step := int64(1); step <= 3; step++ {
		p := at(100 * step)
		p.Reward = float64(step)
		view, _ = view.Update(p)
		view, _ = view.Update(p) // the same step again is no new value
	}
	want := `reverse, seed 1
█████████████████████████████████░░░░░░░░░░░░░░░░░░░░░░░ 300/500  20s  ETA 1m12s
health             1 200/s made → queue 3/8 → 900/s trained, 300/s dropped
reward      3.000  ▁▅█
held-out    0.250  greedy accuracy of version 100
staleness    3.00  ▓▓▓▓▓▓▓▓▓▓▓▓▓░░░░░░░ PQS 2.00 before + IQS 1.00 in the queue
                   ▁▁▁
idle               trainer 4.0 % · rollout 1.0 %
queue           3  of 8 groups · 64 of 64 slots generate
speed       26410  tokens/s · clip fraction 2.0 % · version 299
ctrl+c finishes the train step, saves and says how to resume
`
	if text := view.(liveView).text(); text != want {
		t.Errorf("shows\n%s\nwant\n%s", text, want)
	}
	for _, width := range []int{1, 20, 33, 79, 500} {
		resized, _ := view.Update(tea.WindowSizeMsg{Width: width, Height: 24})
		for _, row := range strings.Split(resized.(liveView).text(), "\n") {
			if cells := len([]rune(row)); cells > min(max(width, 33), widthMax) {
				t.Errorf("at width %d a row takes %d cells: %q", width, cells, row)
			}
		}
	}
	ended, command := view.Update(last{})
	if command == nil || strings.Contains(ended.(liveView).text(), "ctrl+c") {
		t.Error("the last picture still offers Ctrl-C, or does not end")
	}
}

// Histories are bounded, and an older picture keeps its own.
func TestHistoriesAreBounded(t *testing.T) {
	var history []float64
	for i := range 3 * historyMax {
		before := history
		history = remember(history, float64(i))
		if len(before) > 0 && &before[0] == &history[0] {
			t.Fatal("two pictures share a history")
		}
	}
	if len(history) != historyMax || history[historyMax-1] != 3*historyMax-1 {
		t.Errorf("%d values, the last %g", len(history), history[len(history)-1])
	}
}

// The real program on a terminal that is a buffer: it shows the state, Ctrl-C
// reaches the run as a key, and NO_COLOR leaves no colour behind.
func TestLiveViewRuns(t *testing.T) {
	input, keys := io.Pipe()
	defer keys.Close()
	shown := &console{}
	a := &app.Process{Stdin: input, Stdout: io.Discard, Stderr: shown, Now: time.Now, IsTerminal: func(any) bool { return true },
		Getenv: func(name string) string { return map[string]string{"TERM": "xterm-256color", "NO_COLOR": "1"}[name] }}
	v := newProgressView(a, progressOptions{}, "reverse, seed 1")
	stopped, aborted := make(chan struct{}), make(chan struct{})
	v.onInterrupt(func() { close(stopped) }, func() { close(aborted) })
	v.Update(at(7))
	for _, interrupted := range []chan struct{}{stopped, aborted} {
		if _, err := keys.Write([]byte{3}); err != nil {
			t.Fatal(err)
		}
		<-interrupted
	}
	v.Update(at(8))
	v.Message("saved at version 8")
	v.Close()
	for _, want := range []string{"reverse, seed 1", " 8/500", "saved at version 8"} {
		if !strings.Contains(shown.String(), want) {
			t.Errorf("was never shown: %q", want)
		}
	}
	if strings.Contains(shown.String(), "\x1b[3") {
		t.Errorf("colours in spite of NO_COLOR: %q", shown.String())
	}
}
