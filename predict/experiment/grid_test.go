package experiment

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/headway-rl/headway/internal/failure"
)

func TestAxisValues(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"1,2,4", "1 2 4"},
		{"0.3..0.7/0.1", "0.3 0.4 0.5 0.6 0.7"},
		{"3..1/-1", "3 2 1"},
		{"1..2/0.4", "1 1.4 1.8"},
		{"16..1024x4", "16 64 256 1024"},
		{"1..0.1x0.5", "1 0.5 0.25 0.125"},
		{"0.5..2#4", "0.5 1 1.5 2"},
		{"0.1,1..2/0.5,5", "0.1 1 1.5 2 5"},
		{"drop,block", "drop block"},
		{"{policy: drop, factor: 2},{policy: block}", "{policy: drop, factor: 2} {policy: block}"},
		{"./a..b.txt", "./a..b.txt"},
	} {
		axes, err := parseGrid([]string{"key=" + test.text})
		if err != nil {
			t.Errorf("%s: %v", test.text, err)
			continue
		}
		var values []string
		for i := range axes[0].size {
			values = append(values, axes[0].at(i))
		}
		if got := strings.Join(values, " "); got != test.want {
			t.Errorf("%s is %s, want %s", test.text, got, test.want)
		}
	}
	for _, text := range []string{"1..2", "1..2/0", "1..2/-1", "1..2/x", "1..2x1", "1..2x0.5", "0..2x2", "-1..2x2", "1..2#1", "1..2#1.5", "1..NaN/1", "1..2/1e-300", "1..Inf/1"} {
		if _, err := parseGrid([]string{"key=" + text}); err == nil || !blamesUsage(err) || !strings.Contains(err.Error(), "range") {
			t.Errorf("%s is taken: %v", text, err)
		}
	}
	for _, text := range []string{"1,1,2", "drop,block,drop", "1,2,1.0", "0.5,0.1..0.9/0.1"} {
		if _, err := parseGrid([]string{"key=" + text}); err == nil || !blamesUsage(err) || !strings.Contains(err.Error(), "twice") {
			t.Errorf("%s is taken: %v", text, err)
		}
	}
	axes, err := parseGrid([]string{"key=0.3..3#1000000000"})
	if err != nil || axes[0].size != 1e9 || axes[0].at(1e9-1) != "3" || axes[0].at(500_000_000) != "1.65000000135" {
		t.Errorf("a long axis: %v %+v", err, axes)
	}
}

// In a large grid a wrong combination is a row; a value wrong by itself is refused.
func TestLargeGridChecksItsAxes(t *testing.T) {
	g, err := NewGrid(Request{File: smallFile(t), Seeds: 1, Keys: []string{"modelled.train.utilization=0.3..3#100000", "rollout.group_size=4,5"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Check(); err == nil || !strings.Contains(err.Error(), "group_size") {
		t.Errorf("a batch of 32 in groups of 5: %v", err)
	}
	bad := g.make(1)
	p := newGridPoint(g, 1)
	p.add(bad)
	p.finish()
	if bad.err == nil || p.Error == "" || !strings.Contains(cell(noteOf(p)), "group_size") || columns[4].of(p, true) != nil {
		t.Errorf("%v: %+v", bad.err, p)
	}
}

// Values are taken in order whatever order they are made in, few of them at a time.
func TestInOrder(t *testing.T) {
	var ahead, most, taken atomic.Int64
	err := inOrder(5, 400, 4, func(i int64) int64 {
		if n := ahead.Add(1); n > most.Load() {
			most.Store(n)
		}
		for range (i % 7) * 100 {
			runtime.Gosched()
		}
		return i * i
	}, func(i, v int64) error {
		ahead.Add(-1)
		if v != i*i || i != 5+taken.Load() {
			t.Errorf("%d came as %d after %d", i, v, taken.Load())
		}
		taken.Add(1)
		return nil
	})
	if err != nil || taken.Load() != 395 || most.Load() > 4*16+8 {
		t.Errorf("%v, %d taken, %d made ahead", err, taken.Load(), most.Load())
	}
	stop := errors.New("enough")
	if err := inOrder(0, 1<<40, 3, func(i int64) int64 { return i }, func(i, _ int64) error {
		if i == 10 {
			return stop
		}
		return nil
	}); !errors.Is(err, stop) {
		t.Errorf("ended with %v", err)
	}
}

// Every column of a file is explained in the documentation, in its order.
func TestColumnsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/reference/columns.md")
	if err != nil {
		t.Fatal(err)
	}
	at := 0
	for _, c := range columns {
		row := "| `" + c.name + "` | " + c.doc + " |\n"
		i := strings.Index(string(text[at:]), row)
		if i < 0 {
			t.Errorf("docs/reference/columns.md lacks, after the columns before it:\n%s", row)
			continue
		}
		at += i
	}
}

// What seeds share is bounded: memory does not grow with the grid.
func TestSharedSettingsAreBounded(t *testing.T) {
	g := &Grid{Seeds: 3}
	first := g.shared(0)
	if g.shared(0) != first {
		t.Error("seeds of a setting do not share it")
	}
	for i := range int64(1000) {
		g.shared(i)
	}
	if len(g.recent) > recentMax {
		t.Errorf("%d settings are kept, want at most %d", len(g.recent), recentMax)
	}
	one := &Grid{Seeds: 1}
	if one.shared(0); len(one.recent) != 0 {
		t.Error("a setting of one seed is kept")
	}
}

// smallFile is the path of a document small enough for tests.
func smallFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sim.yaml")
	err := os.WriteFile(path, []byte(`
seed: 3
rollout:
  concurrency: 32
  group_size: 4
train: {batch: 32}
queue: {policy: drop, factor: 2}
modelled:
  length: {kind: lognormal, mean_tokens: 200, tailness: 50, cap_tokens: 1500}
  train: {utilization: 0.7}
steps: {warmup: 50, measured: 200}
`), 0o644)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// blamesUsage reports whether an error blames the command line.
func blamesUsage(err error) bool {
	var failed *failure.Error
	return errors.As(err, &failed) && failed.Code == failure.ExitUsage
}
