package foreign

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"testing"
)

// logNames are the names by which frameworks' files are known, and those that any has.
var logNames = []string{
	"metrics.jsonl", "rollout/0/1.jsonl", "perf_tracer/traces-r0.jsonl", "rollouts/step_8/train/effective/traces.jsonl", "trainer_state.json",
	"config.yaml", "config.toml", "orchestrator/metrics.jsonl", "console.log", "output.log", "history.csv", "rollout_data/1.json", "wandb-summary.json", "streams/actor/0/0/0.jsonl",
}

// FuzzLogs: any file of a directory of logs may hold anything. Reading ends, in a log whose figures are numbers or in an error.
func FuzzLogs(f *testing.F) {
	for i, text := range []string{
		`{"step":1,"async/staleness_mean":1.5,"timing/step":10,"_timestamp":1e9}`,
		`{"task_id":1,"version":2,"head_version":3,"reward":1.0,"seqlen":12,"prompt_len":4}`,
		`{"name":"a","ph":"X","ts":1,"dur":2,"args":{"step":1}}`,
		`{"example_id":1,"reward":{"total":1},"timing":{"generation_ms":5},"trajectory":[{"tokens":{"completion_ids":[1,2]}}],"metrics":{"a":1}}`,
		`{"global_step":2,"log_history":[{"step":1,"loss":0.5,"reward":1,"completions/mean_length":12.5},{"step":2,"loss":null}],"logging_steps":1}`,
		"async_training:\n  staleness_threshold: 0.5\n  list: [1, {a: b}]\n  text: |\n    x\n",
		"max_async_level = 2\n[trainer]\nlr = 1e-6\nlist = [1,\n 2]\n",
		`{"step":3,"staleness/mean":"NaN","time/step":1e400}`,
		"step:7 - a:1 - async/staleness_mean:2\n", "perf 4: {'a': {'b': 1}}\n", "_step,async/staleness_mean\n1,2\n3,\"4\n", `{"rewards":[1,2]}`, `{}`, `{"stats":{"lag":1}}`,
	} {
		f.Add(uint(i), []byte(text), uint(0), []byte(`{"step":2}`))
	}
	f.Fuzz(func(t *testing.T, first uint, one []byte, second uint, two []byte) {
		dir := t.TempDir()
		for i, content := range [][]byte{one, two} {
			path := filepath.Join(dir, logNames[[]uint{first, second}[i]%uint(len(logNames))])
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		from := []string{""}
		for _, known := range frameworks {
			from = append(from, known.Name)
		}
		for _, name := range from {
			log, err := Read(context.Background(), []string{dir}, Options{From: name})
			if err != nil {
				continue
			}
			for _, s := range log.Series {
				if math.IsNaN(s.PeriodS.Value) || math.IsInf(s.TimeS.Value, 0) {
					t.Errorf("%+v", s)
				}
			}
		}
	})
}
