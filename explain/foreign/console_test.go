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

// printedRows are the rows of some console text.
func printedRows(t testing.TB, text string) []Row {
	t.Helper()
	var rows []Row
	c := &consoleRows{take: func(r Row) error {
		rows = append(rows, r)
		return nil
	}}
	number := int64(0)
	for line := range strings.SplitSeq(text, "\n") {
		number++
		if err := c.line([]byte(line), number); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.flush(); err != nil {
		t.Fatal(err)
	}
	return rows
}

func TestConsole(t *testing.T) {
	type row struct {
		step   int64
		known  bool
		values map[string]float64
	}
	tests := []struct {
		name, text string
		want       []row
	}{
		{"verl's line", "step:7 - timing_s/step:12.5 - critic/score/mean:np.float64(0.25) - loss:1e-06",
			[]row{{7, true, map[string]float64{"timing_s/step": 12.5, "critic/score/mean": 0.25, "loss": 1e-6}}}},
		{"ray's prefix and colours", "\x1b[36m(TaskRunner pid=4242, ip=10.0.0.7)\x1b[0m step:1 - a/b:2 \x1b[32m [repeated 3x across cluster]\x1b[0m",
			[]row{{1, true, map[string]float64{"a/b": 2}}}},
		{"a progress bar on the line", "Training Progress:  10%|█ | 1/10 [00:01<00:09]\rTraining Progress:  20%|██| 2/10 [00:02<00:08]\rstep:2 - a/b:3",
			[]row{{2, true, map[string]float64{"a/b": 3}}}},
		{"a dictionary with its step", "(MegatronTrainRayActor pid=1) [2025-01-01 00:00:00] train_metric_utils.py:401 - perf 4: {'perf/train_time': 1.5, 'perf/x': tensor(0.5), 'note': \"it's\", 'nested': {'deep': 2}}",
			[]row{{4, true, map[string]float64{"perf/train_time": 1.5, "perf/x": 0.5, "nested.deep": 2}}}},
		{"quoted numbers", "Completed steps 3: {'stats/lag': '128.000', 'stats/lr': '1.000e-06', 'who': 'me'}",
			[]row{{3, true, map[string]float64{"stats/lag": 128, "stats/lr": 1e-6}}}},
		{"dictionaries of no step", "{'loss': 0.5, 'epoch': 0.1}\n{'loss': 0.25, 'epoch': 0.2}",
			[]row{{0, false, map[string]float64{"loss": 0.5, "epoch": 0.1}}, {0, false, map[string]float64{"loss": 0.25, "epoch": 0.2}}}},
		{"JSON between a step's beginning and end", "pipeline step 0 start...\n{\"time/step_train\": 2.5}\npipeline step 0 finished\npipeline step 1 start...\n{\"time/step_train\": 3.5}\npipeline step 1 finished",
			[]row{{0, true, map[string]float64{"time/step_train": 2.5}}, {1, true, map[string]float64{"time/step_train": 3.5}}}},
		{"a prompt that holds JSON", "pipeline step 0 start...\n[{\"prompt\": \"{'time/step_train': 9}\", \"response\": \"step:9 - a:1\"}]\n{\"time/step_train\": 2.5}\npipeline step 0 finished",
			[]row{{0, true, map[string]float64{"time/step_train": 2.5}}}},
		{"a table, whose step counts from 1", "Train step 3/40 done.\n╒═══╤═══╕\n│ timeperf/rollout │ 1.5000e+00 │ rollout/accepted │ 1.0000e+00 │\n├───┼───┤\n│ a/b │ nan │ │ │\n╘═══╧═══╛\nTrain step 4/40 done.\n│ timeperf/rollout │ 2.5000e+00 │",
			[]row{{2, true, map[string]float64{"timeperf/rollout": 1.5, "rollout/accepted": 1, "a/b": math.NaN()}}, {3, true, map[string]float64{"timeperf/rollout": 2.5}}}},
		{"a list", "========================= Step 5/10 =========================\n  • Total step time: 6.50s\n  • policy_training: 5.01s (76.7%)\n  • Avg Trajectory Age: 1.25 steps",
			[]row{{5, true, map[string]float64{"total_step_time": 6.5, "policy_training": 5.01, "avg_trajectory_age": 1.25}}}},
		{"a line that ends a step", "  • Total step time: 6.50s\ntrain step 3/40  trainer_v=3  lag=2  \n  • Total step time: 7.50s\ntrain step 4/40  trainer_v=4  lag=1  ",
			[]row{{3, true, map[string]float64{"total_step_time": 6.5, "trainer_v": 3, "lag": 2}}, {4, true, map[string]float64{"total_step_time": 7.5, "trainer_v": 4, "lag": 1}}}},
		{"figures in a sentence", "[2025-01-01 00:00:00] fully_async_rollout.py:216 - fully-async rollout 3: target=8 queue_warm=5",
			[]row{{3, true, map[string]float64{"target": 8, "queue_warm": 5}}}},
		{"a dictionary that is cut off", "Global step 2: {'timing/ppo_train': 1.5, 'timing/broad", []row{{2, true, map[string]float64{"timing/ppo_train": 1.5}}}},
		{"a number that is cut off", "Global step 2: {'timing/ppo_train': 1.5, 'timing/broadcast': 12.", []row{{2, true, map[string]float64{"timing/ppo_train": 1.5}}}},
		{"ordinary lines", "Loading checkpoint shards: 100%\nINFO: nothing to see\nhttps://example.org/?a=b\n[1, 2, 3]\n{not a dictionary}\n", nil},
		{"the queue's size", "INFO 11-14 22:13:20 ppo_trainer_async.py:290] queue_size=2\nloss=0.5 lr=1", nil},
		{"before the first step", "  • max_model_len: 4096\nTrain step 1/2 done.\n│ a/b │ 1.0 │", []row{{0, true, map[string]float64{"a/b": 1}}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var got []row
			for _, r := range printedRows(t, test.text) {
				if !r.Printed {
					t.Error("the row is not said to be printed")
				}
				got = append(got, row{r.Step, r.HasStep, r.Values})
			}
			if fmt.Sprint(got) != fmt.Sprint(test.want) {
				t.Errorf("rows\n%v, want\n%v", got, test.want)
			}
		})
	}
}

func TestConsoleClocks(t *testing.T) {
	const at = 1_700_000_000 // 2023-11-14 22:13:20
	for text, want := range map[string]float64{
		"[2023-11-14 22:13:20] x": at, "2023-11-14T22:13:20.250 x": at + 0.25, "(AReaL) 20231114-22:13:20.125 StatsLogger": at + 0.125,
		"[finetune]: 11/14/2023 22:13:20.500 - INFO": at + 0.5, "INFO 11-14 22:13:21 x.py:1] b": 1, "nothing": 0, "at 99:99:99": 0, "2023-13-45 22:13:20": 0,
	} {
		got := stampOf(text)
		if strings.HasPrefix(text, "INFO") { // no year: only differences count
			got -= stampOf(strings.Replace(text, ":21 ", ":20 ", 1))
		}
		if got != want {
			t.Errorf("%q is at %v, want %v", text, got, want)
		}
	}
}

// Text goes through in bounded memory, whatever its size: no line is kept beyond its step.
func TestConsoleStreams(t *testing.T) {
	rows, held := 0, 0
	c := &consoleRows{take: func(Row) error { rows++; return nil }}
	line := []byte("Global step 1: {'timing/ppo_train': 1.5}")
	noise := []byte("  • figure_")
	for i := range 20_000 {
		if err := c.line(fmt.Appendf(noise[:len(noise):len(noise)], "%d: %d", i, i), 1); err != nil {
			t.Fatal(err)
		}
		held = max(held, len(c.pending))
		if i%100 == 0 {
			if err := c.line(line, 1); err != nil {
				t.Fatal(err)
			}
		}
	}
	if rows < 200 {
		t.Errorf("%d rows, want one of each step", rows)
	}
	if held > pendingMax {
		t.Errorf("%d figures were held at once, want at most %d", held, pendingMax)
	}
}

func TestConsoleLongLine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "run.log")
	text := "Global step 1: {'timing/ppo_train': 1.5, 'timing/make_experience': 0.5, 'timing/step_total': 3.0}\n" + strings.Repeat("x", consoleLineMax+1) + "\n" +
		"Global step 2: {'timing/ppo_train': 2.5, 'timing/make_experience': 0.5, 'timing/step_total': 4.0}\n"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	log, err := Read(context.Background(), []string{file}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(log.Series) != 2 || log.Series[1].PeriodS.Value != 4 {
		t.Errorf("series %+v", log.Series)
	}
	if len(log.Warnings) != 1 || !strings.Contains(log.Warnings[0].Text, "longer than 1 MiB") || log.Warnings[0].Line != 2 {
		t.Errorf("warnings %+v, want one of line 2", log.Warnings)
	}
}

func TestConsoleFits(t *testing.T) {
	for _, test := range []struct {
		file, text string
		want       bool
	}{
		{"output.log", "hello\nstep:1 - a/b:2\n", true}, {"nohup.out", "a thousand lines of start-up\n", true}, {"terminal.txt", "Global step 1: {'a/b': 1}\n", true}, {"terminal", "Train step 1/2 done.", true},
		{"requirements.txt", "numpy==2.4.6\nwandb==0.31.0\n", false}, {"output.log", "\x00\x01step:1 - a:2\n", false}, {"empty.log", "", false}, {"data.parquet", "step:1 - a/b:2\n", false},
	} {
		if got := fitsConsole(test.file, []byte(test.text)); got != test.want {
			t.Errorf("%s with %q fits %v, want %v", test.file, test.text, got, test.want)
		}
	}
}

// Whatever a console holds, reading ends, holds little and gives keys and steps that stand in the text.
func FuzzConsole(f *testing.F) {
	for _, seed := range []string{"step:7 - a:1", "perf 4: {'a': {'b': [1, {'c': 2}]}, \"d\": np.float64(1)}", "│ a │ 1 │", "  • A b: 1.5s (2%)", "\x1b[31m(a pid=1)\x1b[0m x=1\ry=2", "{'a': 'b\\'', 'c'", "Train step 9223372036854775807/1 done.\n│ a │ 1 │"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, r := range printedRows(t, text) {
			if len(r.Values) == 0 || len(r.Values) > pendingMax {
				t.Errorf("a row of %d figures", len(r.Values))
			}
		}
		if again := printedRows(t, text); len(again) != len(printedRows(t, text)) {
			t.Error("the same text gave other rows")
		}
	})
}

func TestPythonField(t *testing.T) {
	const text = `namespace(a=1, inner=namespace(batch_size=9, x=[1, 2]), name='it\'s, batch_size=7', batch_size=8, last=None)`
	for name, want := range map[string]string{"a": "1", "batch_size": "8", "last": "None", "x": "", "inner": "namespace(batch_size=9, x=[1, 2])"} {
		if got := pythonField(text, name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	for _, torn := range []string{"", "namespace(", "namespace(a", "namespace(a='", "list(a=1)", "namespace)a=1("} {
		if got := pythonField(torn, "batch_size"); got != "" {
			t.Errorf("%q has %q", torn, got)
		}
	}
}
