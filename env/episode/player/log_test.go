package player

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/env/episode"
	"github.com/headway-rl/headway/env/sandbox"
)

func names(t *testing.T, dir string) (rollouts []string) {
	t.Helper()
	if err := ReadLog(dir, func(r episode.Record) error {
		rollouts = append(rollouts, r.Rollout)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return rollouts
}

func appendTo(t *testing.T, l *Log, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		if err := l.Append(episode.Record{Rollout: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
}

func upTo(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprint(i))
	}
	return all
}

// What a crash has torn is left out by readers and cut off by the next process.
func TestTornLine(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, LogName)
	if got := names(t, dir); got != nil {
		t.Errorf("a run without a log has %v", got)
	}
	l, err := OpenLog(dir)
	if err != nil {
		t.Fatal(err)
	}
	appendTo(t, l, 0, 2)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(`{"rollout":"torn` + strings.Repeat("x", 1<<17)); err != nil {
		t.Fatal(err)
	}
	file.Close()
	if got := names(t, dir); !slices.Equal(got, upTo(2)) {
		t.Errorf("read %v beside a torn line", got)
	}
	if l, err = OpenLog(dir); err != nil {
		t.Fatal(err)
	}
	appendTo(t, l, 2, 4)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := l.Append(episode.Record{}); err == nil {
		t.Error("a closed log takes records")
	}
	if got := names(t, dir); !slices.Equal(got, upTo(4)) {
		t.Errorf("read %v behind a torn line", got)
	}
}

// A line that is no record says where it is.
func TestBrokenLine(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, LogName)
	if err := os.WriteFile(path, []byte("{}\n{\"rollout\":3}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := ReadLog(dir, func(episode.Record) error { return nil })
	if err == nil || !strings.Contains(err.Error(), path+":2:") {
		t.Errorf("the broken line is reported as %v", err)
	}
}

// A long log is set aside in compressed parts, of which the newest are kept; a process that ended
// while it compressed leaves nothing twice.
func TestLogRotates(t *testing.T) {
	dir := t.TempDir()
	l, err := openLog(dir, 300)
	if err != nil {
		t.Fatal(err)
	}
	appendTo(t, l, 0, 100)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	kept := parts(dir)
	if len(kept) < 5 || !kept[0].compressed {
		t.Fatalf("the parts are %v", kept)
	}
	if got := names(t, dir); !slices.Equal(got, upTo(100)) {
		t.Errorf("read %v", got)
	}
	plain := strings.TrimSuffix(kept[1].path, ".gz") // renamed, and not yet removed
	if err := os.WriteFile(plain, []byte("{\"rollout\":\"twice\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(plain+".gz.tmp", []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := names(t, dir); !slices.Equal(got, upTo(100)) {
		t.Errorf("read %v", got)
	}
	if l, err = openLog(dir, 300); err != nil {
		t.Fatal(err)
	}
	appendTo(t, l, 100, 1000)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if n := len(parts(dir)); n != partsMax {
		t.Errorf("%d parts are kept, want %d", n, partsMax)
	}
	if got := names(t, dir); got[len(got)-1] != "999" || slices.Contains(got, "0") {
		t.Errorf("the log goes from %s to %s", got[0], got[len(got)-1])
	}
}

func TestTally(t *testing.T) {
	var tally Tally
	if e := tally.Episodes(); e.Scored != 0 || len(e.Parts) != 0 {
		t.Errorf("nothing is %+v", e)
	}
	for i := range 100 {
		reward := 0.5
		ns := int64(i+1) * 1e9
		tally.Add(episode.Record{Reward: &reward, Turns: 2, Limits: map[string]int{"disk": 1}, Spans: []episode.Span{
			{Kind: episode.Model, StartNS: 10, EndNS: 10 + ns}, {Kind: episode.Tool, StartNS: 10 + ns, EndNS: 10 + ns + 5e8}, {Kind: episode.Tool, StartNS: 10 + ns + 5e8, EndNS: 10 + ns + 1e9}}})
	}
	tally.Add(episode.Record{Failure: sandbox.Lost})
	tally.Add(episode.Record{Failure: episode.Unwanted})
	e := tally.Episodes()
	if e.Scored != 100 || e.Failed != 1 || e.Unwanted != 1 || e.RewardSum != 50 || e.Turns != 200 || e.Failures["lost"] != 1 || e.Limits["disk"] != 100 {
		t.Errorf("counted %+v", e)
	}
	near := func(got, want float64) bool { return math.Abs(got-want) < 0.015*want }
	model, tool := e.Parts[0], e.Parts[1]
	if model.Part != "model" || tool.Part != "tool" || !near(model.MeanS, 50.5) || !near(model.P50S, 50) || !near(model.P99S, 99) || !near(tool.P50S, 1) || tool.Episodes != 100 || !near(e.Whole.MeanS, 51.5) {
		t.Errorf("the parts are %+v of %+v", e.Parts, e.Whole)
	}
}

func BenchmarkAppend(b *testing.B) {
	l, err := OpenLog(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	reward := 1.0
	record := episode.Record{Rollout: "g12-s3-a1", Task: "t", Reward: &reward, Spans: make([]episode.Span, 12)}
	b.ReportAllocs()
	for b.Loop() {
		if err := l.Append(record); err != nil {
			b.Fatal(err)
		}
	}
}
