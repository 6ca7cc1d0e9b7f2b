package main

import (
	"bytes"
	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/internal/failure"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// A grid's page has its lines, maps and settings, needs nothing from elsewhere, and is
// the same again.
func TestGridPage(t *testing.T) {
	dir := t.TempDir()
	page := func(name string, more ...string) (string, int, string) {
		path := filepath.Join(dir, name)
		code, _, stderr := headway(t, append([]string{"simulate", document(t, simulated), "--html", path, "--set", "steps.measured=150"}, more...)...)
		text, _ := os.ReadFile(path)
		return string(text), code, stderr
	}
	grid := []string{"--grid", "modelled.train.utilization=0.5..0.8/0.1", "--grid", "queue.factor=1,2", "--grid", "queue.select=oldest,newest"}
	text, code, stderr := page("a.html", grid...)
	if code != failure.ExitDone || stderr != "" {
		t.Fatalf("code %d: %s", code, stderr)
	}
	for _, want := range []string{"<title>", "modelled.train.utilization × queue.factor", "Mean staleness, policy versions · queue.select newest", "queue.factor 2, queue.select oldest", "16 settings"} {
		if !strings.Contains(text, want) {
			t.Errorf("lacks %q", want)
		}
	}
	if pictures := strings.Count(text, "<svg"); pictures < 7 {
		t.Errorf("%d pictures", pictures)
	}
	if regexp.MustCompile(`(src|href)="[^#]`).MatchString(text) || strings.Contains(text, "NaN") {
		t.Error("the page asks for something, or shows what is no number")
	}
	if again, _, _ := page("b.html", append(grid, "--out", filepath.Join(dir, "b.csv"))...); again != text {
		t.Error("the same grid gave another page")
	}
	unsettled, code, _ := page("c.html", "--grid", "queue.factor=1,8", "--set", "modelled.train.utilization=1")
	if code != failure.ExitFailure || !strings.Contains(unsettled, "have not settled: they are left out") {
		t.Errorf("code %d: nothing says what has not settled", code)
	}
	words, code, stderr := page("d.html", "--grid", "queue.policy=drop,block")
	if code != failure.ExitDone || !strings.Contains(words, "block") {
		t.Errorf("an axis of words: code %d: %s", code, stderr)
	}
	for _, test := range []struct {
		want      string
		arguments []string
	}{
		{"--grid KEY", nil},
		{"--resume", []string{"--grid", "queue.factor=1,2", "--out", "x.csv", "--resume"}},
		{"10 000 simulations", []string{"--yes", "--grid", "modelled.train.utilization=0.5..0.8#20000", "--out", filepath.Join(dir, "e.csv")}},
	} {
		if _, code, stderr := page("e.html", test.arguments...); code != failure.ExitUsage || !strings.Contains(stderr, test.want) {
			t.Errorf("%q: code %d: %s", test.arguments, code, stderr)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "e.csv")); err == nil {
		t.Error("a refused grid left a file")
	}
	if left, err := filepath.Glob(filepath.Join(dir, "e.html")); err != nil || len(left) > 0 {
		t.Error("a refused page left a file")
	}
	if !bytes.Contains([]byte(text), []byte("prefers-color-scheme: dark")) {
		t.Error("the page has no dark look")
	}
}

// While a grid is simulated there is no page yet: one that is interrupted can be asked for again.
func TestGridPageComesAtTheEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.html")
	began, early := false, false
	a := &app.Process{Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard, IsTerminal: func(any) bool { return false }, Getenv: func(string) string { return "" }}
	a.Now = func() time.Time { // the progress looks at the clock
		info, err := os.Stat(path)
		early, began = early || err == nil && info.Size() == 0, true
		return time.Now()
	}
	c := &simulateCmd{File: document(t, simulated), Set: []string{"steps.measured=150"}, Seeds: 1, Grid: []string{"queue.factor=1,2"}, HTML: path, Accept: true}
	if err := c.Run(a); err != nil || !began || early {
		t.Errorf("%v; the clock was looked at: %t, and an empty page was there: %t", err, began, early)
	}
	if info, err := os.Stat(path); err != nil || info.Size() == 0 {
		t.Errorf("no page: %v", err)
	}
}
