package taskset

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

func opened(t testing.TB, path string) *Counts {
	t.Helper()
	b, err := OpenCounts(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func record(t testing.TB, b *Counts, results ...Result) {
	t.Helper()
	for _, r := range results {
		if err := b.Record(r); err != nil {
			t.Fatal(err)
		}
	}
}

// all is counts as text: what is counted of every task and level.
func all(b *Counts) string {
	text, _ := json.Marshal([]any{b.Hardest(1<<20, 0), b.Levels()})
	return string(text)
}

func someResults(n int) []Result {
	draw := rand.New(rand.NewPCG(1, 2))
	var results []Result
	for i := range n {
		r := Result{Task: fmt.Sprintf("t%d", draw.IntN(9)), Version: int64(draw.IntN(5)), Time: time.UnixMilli(int64(draw.IntN(1e6)))}
		r.Level = 1 + int(r.Task[1]-'0')%3
		if r.Failed = i%11 == 0; !r.Failed {
			r.Solved, r.Reward = draw.IntN(2) == 0, draw.NormFloat64()*1e3
		}
		results = append(results, r)
	}
	return results
}

// TestCountsOrder: the counts are those of the results, in whatever order they came, through whatever
// restarts, and whatever the file has been cut by.
func TestCountsOrder(t *testing.T) {
	results := someResults(20_000)
	want := ""
	for try := range 3 {
		path := filepath.Join(t.TempDir(), "task_counts.log")
		b := opened(t, path)
		for i, r := range results {
			record(t, b, r)
			switch {
			case i%5000 == 77: // as a kill leaves it
				b = opened(t, path)
			case i%5000 == 99: // and in the middle of a line
				f, _ := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
				f.WriteString(`["t1",1,2`)
				f.Close()
				b = opened(t, path)
			}
		}
		if want == "" {
			want = all(b)
		} else if got := all(b); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if got := all(opened(t, path)); got != want {
			t.Errorf("opened again: %s\nwant %s", got, want)
		}
		if info, _ := os.Stat(path); info.Size() > 80*(2*9+slack+10) {
			t.Errorf("%d bytes of 9 tasks", info.Size())
		}
		rand.New(rand.NewPCG(uint64(try), 0)).Shuffle(len(results), func(i, j int) { results[i], results[j] = results[j], results[i] })
	}
	sum, n := 0.0, 0
	for _, r := range results {
		if r.Task == "t3" && !r.Failed {
			sum, n = sum+r.Reward, n+1
		}
	}
	path := filepath.Join(t.TempDir(), "task_counts.log")
	b := opened(t, path)
	record(t, b, results...)
	if c, ok := b.Count("t3"); !ok || c.Scored() != int64(n) || math.Abs(c.RewardMean-sum/float64(n)) > 1e-7 || b.Len() != 9 {
		t.Errorf("%+v, want a mean of %g over %d", c, sum/float64(n), n)
	}
}

func TestCountsLists(t *testing.T) {
	b := opened(t, filepath.Join(t.TempDir(), "task_counts.log"))
	at := time.UnixMilli(5)
	record(t, b,
		Result{Task: "never", Level: 2, Reward: 0.25, Time: at, Version: 3}, Result{Task: "never", Level: 2, Reward: 0.25, Time: at}, Result{Task: "never", Level: 2, Failed: true, Time: at},
		Result{Task: "always", Level: 1, Solved: true, Reward: 1, Time: at}, Result{Task: "always", Level: 1, Solved: true, Reward: 1, Time: at},
		Result{Task: "often", Level: 1, Solved: true, Reward: 1, Time: at}, Result{Task: "often", Level: 1, Time: at}, Result{Task: "often", Level: 1, Solved: true, Reward: 1, Time: at},
		Result{Task: "once", Reward: -2, Time: at}, Result{Task: "lost", Failed: true, Time: at})
	names := func(counts []Count) string {
		var words []string
		for _, c := range counts {
			words = append(words, c.Task)
		}
		return strings.Join(words, " ")
	}
	if got := names(b.Hardest(9, 2)); got != "never often always" {
		t.Error(got)
	}
	if got := names(b.Easiest(2, 1)); got != "always often" {
		t.Error(got)
	}
	if c, _ := b.Count("never"); c != (Count{"never", 2, 3, 1, 0, 0.25, 3, 5}) || c.SolveRate() != 0 {
		t.Errorf("%+v", c)
	}
	levels := b.Levels()
	if len(levels) != 3 || levels[1].Level != 1 || levels[1].Attempts != 5 || levels[1].SolveRate() != 0.8 || levels[0].Failed != 1 {
		t.Errorf("%+v", levels)
	}
	for _, wrong := range []Result{{}, {Task: "x", Reward: math.NaN()}, {Task: "x", Reward: math.Inf(1)}, {Task: "x", Reward: 2e9}, {Task: "x", Failed: true, Solved: true}, {Task: strings.Repeat("x", 600)}} {
		if err := b.Record(wrong); err == nil {
			t.Errorf("%+v was counted", wrong)
		}
	}
	if _, there := b.Count("x"); there {
		t.Error("what is no result was counted")
	}
}

func TestBrokenCounts(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]string{
		"something else\n":                             "it begins with",
		countsHeader + "\n[\"a\",1]\n":                 "line 2",
		countsHeader + "\n[1,2]\n{}\n":                 "line 3",
		countsHeader + "\n[\"a\",0,1,2,3,0,0,0,0]\n":   "does not add up",
		countsHeader + "\n[\"a\",0,1,0,0,0.5,0,0,0]\n": "no task with 8 numbers",
		countsHeader + "\n[1,2,3]\n":                   "neither a task nor a group",
	} {
		path := filepath.Join(dir, "task_counts.log")
		os.WriteFile(path, []byte(text), 0o600)
		if _, err := OpenCounts(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, err := OpenCounts(filepath.Join(dir, "none", "task_counts.log")); err == nil {
		t.Error("no error")
	}
}

// A deposed process that ends within a write leaves a piece of a line behind which its successor goes on. The successor's line is
// whole, and so is all that a later process reads.
func TestCountsBehindAPieceOfALine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "task_counts.log")
	before := opened(t, path)
	record(t, before, Result{Task: "a", Solved: true, Reward: 1})
	b := opened(t, path)
	for _, piece := range []string{`["a",0,2,0,`, "\x00\x00\x00"} {
		if _, err := before.file.WriteString(piece); err != nil {
			t.Fatal(err)
		}
		record(t, b, Result{Task: "b", Reward: 1}, Result{Task: "c"})
	}
	later := opened(t, path)
	if all(later) != all(b) || later.Torn() != 2 || b.Torn() != 0 {
		t.Errorf("%s\nwant %s; %d pieces", all(later), all(b), later.Torn())
	}
	record(t, later, Result{Task: "d"})
	if again := opened(t, path); all(again) != all(later) {
		t.Errorf("%s\nwant %s", all(again), all(later))
	}
}

// TestCountsWriteFails: what could not be written is counted, said, and written by the next call.
func TestCountsWriteFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "task_counts.log")
	b := opened(t, path)
	record(t, b, Result{Task: "a", Solved: true, Reward: 1})
	b.file.Close() // as good as a disk that refuses
	if err := b.Record(Result{Task: "b"}); !errors.Is(err, os.ErrClosed) {
		t.Fatal(err)
	}
	record(t, b, Result{Task: "c"})
	if got := opened(t, path); got.Len() != 3 || all(got) != all(b) {
		t.Errorf("%s\nwant %s", all(got), all(b))
	}
	b.Close()
	if err := b.Record(Result{Task: "a"}); err == nil {
		t.Error("closed counts count")
	}
}

func feedOf(t testing.TB, s *Set, b *Counts, rule Rule) *Chooser {
	t.Helper()
	f, err := NewChooser(s, b, rule, 7)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func played(t testing.TB, f *Chooser, group, prompt int64, level int) string {
	t.Helper()
	task, err := f.At(group, prompt, level)
	if err != nil {
		t.Fatal(err)
	}
	return task.ID
}

func numbered(t testing.TB, n int) *Set {
	var lines []string
	for i := range n {
		lines = append(lines, fmt.Sprintf(`{"id": "t%d", "prompt": "%d", "level": %d}`, i+1, i, 1+i%2))
	}
	return loaded(t, Options{Paths: []string{written(t, "set.jsonl", strings.Join(lines, "\n"))}})
}

func TestFeed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "task_counts.log")
	s, b := numbered(t, 6), opened(t, path)
	f := feedOf(t, s, b, Rule{ScoredMin: 2})
	if played(t, f, 1, 1, 0) != "t1" || played(t, f, 2, 1, 1) != "t1" {
		t.Fatal("a task of which nothing is known is played")
	}
	record(t, b, Result{Task: "t1", Solved: true, Reward: 1}, Result{Task: "t1", Failed: true})
	if played(t, f, 3, 1, 0) != "t1" {
		t.Error("one scored attempt says too little")
	}
	record(t, b, Result{Task: "t1", Solved: true, Reward: 1}, Result{Task: "t2"}, Result{Task: "t2"}, Result{Task: "t3"}, Result{Task: "t3", Solved: true})
	if got := played(t, f, 4, 1, 0); got != "t3" {
		t.Errorf("after a task that is always solved and one that never is: %s", got)
	}
	if got := played(t, f, 5, 1, 2); got != "t4" {
		t.Errorf("within level 2: %s", got)
	}
	record(t, b, Result{Task: "t3", Solved: true}, Result{Task: "t1"})
	again := feedOf(t, s, opened(t, path), Rule{ScoredMin: 2})
	for _, feed := range []*Chooser{f, again} { // siblings, retries, and after a kill
		if got := []string{played(t, feed, 1, 1, 0), played(t, feed, 3, 1, 0), played(t, feed, 4, 1, 0), played(t, feed, 5, 1, 2)}; !reflect.DeepEqual(got, []string{"t1", "t1", "t3", "t4"}) {
			t.Errorf("a group plays something else: %v", got)
		}
	}
	for i := range 6 {
		id := fmt.Sprintf("t%d", i+1)
		b.tallies[id] = &tally{attempts: 9, solved: 9}
	}
	if got := played(t, f, 6, 5, 0); got != "t5" {
		t.Errorf("where none teaches, the one that was asked for is played: %s", got)
	}
	if _, err := NewChooser(s, b, Rule{Share: math.NaN()}, 1); err == nil {
		t.Error("no error")
	}
}

// TestFeedShare: a task that teaches nothing is played at its share of its turns, by the seed.
func TestFeedShare(t *testing.T) {
	s, b := numbered(t, 2), opened(t, filepath.Join(t.TempDir(), "task_counts.log"))
	b.tallies["t1"] = &tally{attempts: 4, solved: 4}
	f, counts := feedOf(t, s, b, Rule{ScoredMin: 4, Share: 0.2}), map[string]int{}
	for group := range int64(2000) {
		counts[played(t, f, group+1, 1, 0)]++
	}
	if played(t, feedOf(t, s, b, Rule{}), 1, 1, 0) != "t1" {
		t.Error("no rule plays all alike")
	}
	if counts["t1"] < 330 || counts["t1"] > 470 || counts["t1"]+counts["t2"] != 2000 {
		t.Error(counts)
	}
}

func TestFeedForgets(t *testing.T) {
	s, b := numbered(t, 2), opened(t, filepath.Join(t.TempDir(), "task_counts.log"))
	f := feedOf(t, s, b, Rule{ScoredMin: 1})
	for group := range int64(2*pinsMax + 10) {
		b.pins[group+1] = 1
	}
	played(t, f, 3*pinsMax, 1, 0)
	if len(b.pins) > pinsMax+20 || b.pins[2*pinsMax] != 1 {
		t.Error(len(b.pins))
	}
}

// A choice that cannot be written is none, and is no fault of the task.
func TestUnwrittenChoice(t *testing.T) {
	b := opened(t, filepath.Join(t.TempDir(), "task_counts.log"))
	f := feedOf(t, numbered(t, 4), b, Rule{ScoredMin: 3, Share: 0.5})
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if task, err := f.At(1, 1, 0); !errors.Is(err, ErrUnwritten) || task != nil || len(b.pins) > 0 {
		t.Errorf("%v, %v, %d choices", task, err, len(b.pins))
	}
}

func TestCountsTogether(t *testing.T) {
	b := opened(t, filepath.Join(t.TempDir(), "task_counts.log"))
	f := feedOf(t, numbered(t, 4), b, Rule{ScoredMin: 3, Share: 0.5})
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 200 {
				task, err := f.At(int64(i+1), int64(i+1), 0)
				if err != nil || b.Record(Result{Task: task.ID, Solved: w == 0}) != nil {
					t.Error(err)
				}
				b.Levels()
			}
		})
	}
	wg.Wait()
	if sum := b.Levels(); sum[0].Attempts != 800 {
		t.Errorf("%+v", sum)
	}
}

// A control plane may go on for a moment beside the one that has taken its place: neither writes into the other's lines.
func TestCountsOfTwoProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "task_counts.log")
	deposed, successor := opened(t, path), opened(t, path)
	for i := range 50 {
		for name, b := range map[string]*Counts{"deposed": deposed, "successor": successor} {
			if err := b.Record(Result{Task: strings.Repeat(name, 1+i%3), Solved: true}); err != nil {
				t.Fatal(err)
			}
		}
	}
	again, err := OpenCounts(path)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	for _, name := range []string{"deposed", "successor"} {
		if c, ok := again.Count(name); !ok || c.Attempts != 17 {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

func BenchmarkRecord(b *testing.B) {
	counts := opened(b, filepath.Join(b.TempDir(), "task_counts.log"))
	b.ReportAllocs()
	for i := range b.N {
		counts.Record(Result{Task: fmt.Sprintf("task-%d", i%10_000), Level: 1, Solved: i%2 == 0, Reward: 0.5})
	}
}

// Count returns what is known of a task; false where it was never played.
func (b *Counts) Count(task string) (Count, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.tallies[task]
	if t == nil {
		return Count{Task: task}, false
	}
	return t.count(task), true
}
