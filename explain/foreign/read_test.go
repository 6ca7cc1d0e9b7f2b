package foreign

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// written puts a file into a directory of the test's and returns its path.
func written(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// fullyAsync is a history of verl's with one row a sync, two train steps a row.
func fullyAsync(rows int) string {
	var b strings.Builder
	for i := 1; i <= rows; i++ {
		fmt.Fprintf(&b, `{"_step":%d,"_timestamp":%d,"fully_async/static/required_samples":16,"fully_async/static/max_concurrent_samples":32,`+
			`"fully_async/static/max_queue_size":48,"fully_async/monitor/active_tasks_size":32,"fully_async/monitor/queue/mq_queue_size":8,`+
			`"timing_s/step":20,"timing_s/gen":4,"timing_s/param_sync":1,"fully_async/count/dropped_stale_samples":%d}`+"\n", i, 1000+21*i, 2*i)
	}
	return b.String()
}

var fullyAsyncGiven = map[string]float64{"group_size": 8, "sync_every": 2}

func TestReadFullyAsync(t *testing.T) {
	log, err := Read(context.Background(), []string{written(t, "history.jsonl", fullyAsync(5))}, Options{Given: fullyAsyncGiven})
	if err != nil {
		t.Fatal(err)
	}
	if log.Framework != "verl-fa" || len(log.Series) != 5 {
		t.Fatalf("framework %s, %d steps", log.Framework, len(log.Series))
	}
	for name, want := range map[string]float64{"batch_rollouts": 128, "concurrency_rollouts": 256, "queue_rollouts": 384} {
		if got := SettingsKnown[settingIndex(name)].At(&log.Settings); got.Value != want {
			t.Errorf("%s = %+v, want %g", name, *got, want)
		}
	}
	last := log.Series[4]
	if last.Steps != 2 || stepsOf(log) != 10 {
		t.Errorf("a row stands for %d train steps, the log for %d", last.Steps, stepsOf(log))
	}
	for _, c := range []struct {
		n    Notion
		want float64
	}{{Period, 10.5}, {Train, 8}, {Wait, 2}, {Sync, 1}, {Staleness, 3}, {InFlight, 256}, {Dropped, 8}} {
		if got := c.n.At(&last); !got.Known() || math.Abs(got.Value-c.want) > 1e-12 {
			t.Errorf("%s = %+v, want %g", c.n.Name, *got, c.want)
		}
	}
}

// What is given is believed: settings, and figures of every step.
func TestGiven(t *testing.T) {
	given := map[string]float64{"group_size": 4, "sync_every": 1, "tail_multiplier": 1.75, "period_s": 30}
	log, err := Read(context.Background(), []string{written(t, "history.jsonl", fullyAsync(3))}, Options{Given: given})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		n    Notion
		want float64
	}{{Tail, 1.75}, {Period, 30}} {
		if got, n := log.Mean(c.n); got.Origin != Given || got.Value != c.want || n != stepsOf(log) {
			t.Errorf("%s = %+v over %d, want %g", c.n.Name, got, n, c.want)
		}
	}
	if log.Settings.GroupSize.Origin != Given || log.Settings.BatchRollouts.Value != 64 || missing(log, "tail_multiplier") != nil {
		t.Errorf("settings %+v, missing %+v", log.Settings, log.Missing)
	}
}

// stepsOf is how many train steps a log has rows of.
func stepsOf(log *Log) (steps int64) {
	for i := range log.Series {
		steps += max(log.Series[i].Steps, 1)
	}
	return steps
}
