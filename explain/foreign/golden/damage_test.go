package golden_test

import (
	"bytes"
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headway-rl/headway/explain/foreign"
)

// metricFiles are the one file of each framework and tracker that damage is done to.
var metricFiles = []struct{ framework, file string }{
	{"verl-fa", "wandb/run-verl-fa.wandb"}, {"verl-fa", "verl-fa.jsonl"}, {"verl-fa", "console.log"}, {"verl-v1", "tensorboard/events.out.tfevents.1700000000.node-0.1.0"},
	{"skyrl", "wandb/run-skyrl.wandb"}, {"areal", "tensorboard/events.out.tfevents.1700000000.node-0"}, {"areal", "console.log"}, {"pipelinerl", "finetune/wandb/run-finetune.wandb"}, {"pipelinerl", "finetune.log"},
	{"slime", "wandb/run-slime.wandb"}, {"slime", "console.log"}, {"nemo-rl", "tensorboard/events.out.tfevents.1700000000.node-0.1.0"}, {"nemo-rl", "console.log"}, {"openrlhf", "wandb/run-openrlhf.wandb"},
	{"openrlhf", "console.log"}, {"roll", "log_rank_DRIVER_0_1.log"}, {"roll", "wandb/run-roll.wandb"}, {"trl", "wandb/run-trl.wandb"},
}

// A file that a run is still writing, or died writing, says of its whole steps what the whole file
// says of them.
func TestImportHalfWritten(t *testing.T) {
	for _, f := range metricFiles {
		t.Run(f.framework+"/"+f.file, func(t *testing.T) {
			dir, _ := unpack(t, f.framework)
			path := filepath.Join(dir, f.file)
			whole, err := foreign.Read(context.Background(), []string{path}, foreign.Options{})
			if err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, share := range []float64{0.35, 0.6, 0.9} {
				cut := int(share * float64(len(text)))
				if err := os.WriteFile(path, text[:cut], 0o644); err != nil {
					t.Fatal(err)
				}
				part, err := foreign.Read(context.Background(), []string{path}, foreign.Options{})
				if err != nil {
					t.Fatalf("cut after %d of %d bytes: %v", cut, len(text), err)
				}
				if least := int(share*float64(len(whole.Series)))/2 - 1; len(part.Series) < least {
					t.Fatalf("cut after %d of %d bytes: %d steps, want at least %d", cut, len(text), len(part.Series), least)
				}
				// The last step may lack what had not been written, and with it what is inferred from it.
				for i := range part.Series[:len(part.Series)-2] {
					got, want := part.Series[i], whole.Series[i]
					for _, n := range []foreign.Notion{foreign.Period, foreign.Staleness, foreign.StalenessTop, foreign.Train, foreign.Sync} {
						a, b := *n.At(&got), *n.At(&want)
						if a.Known() != b.Known() || math.Abs(a.Value-b.Value) > 1e-9 {
							t.Fatalf("cut after %d of %d bytes: %s of step %d is %+v, whole it is %+v", cut, len(text), n.Name, got.Step, a, b)
						}
					}
				}
			}
		})
	}
}

// Bytes that a disk has spoilt cost what stands in them, and neither the reader nor the rest.
func TestImportSpoiltBytes(t *testing.T) {
	for _, f := range metricFiles {
		t.Run(f.framework+"/"+f.file, func(t *testing.T) {
			dir, _ := unpack(t, f.framework)
			path := filepath.Join(dir, f.file)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for i := len(text) / 3; i < len(text)/3+64; i++ {
				text[i] ^= 0xa5
			}
			if err := os.WriteFile(path, text, 0o644); err != nil {
				t.Fatal(err)
			}
			log, err := foreign.Read(context.Background(), []string{path}, foreign.Options{From: strings.TrimSuffix(f.framework, "-sc")})
			if err != nil {
				t.Fatal(err)
			}
			if len(log.Series) < 3 {
				t.Errorf("%d steps are left", len(log.Series))
			}
		})
	}
}

// edited rewrites a text file of an archive and reads it.
func edited(t *testing.T, framework, file string, edit func([]byte) []byte) (*foreign.Log, error) {
	t.Helper()
	dir, _ := unpack(t, framework)
	path := filepath.Join(dir, file)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, edit(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return foreign.Read(context.Background(), []string{path}, foreign.Options{})
}

// A key that a newer version renamed is missing by name, and the new name is shown.
func TestImportRenamedKey(t *testing.T) {
	log, err := edited(t, "openrlhf", "console.log", func(text []byte) []byte {
		return bytes.ReplaceAll(text, []byte("'timing/step_total'"), []byte("'timing/steps_total'"))
	})
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, m := range log.Missing {
		if strings.HasPrefix(m.What, "wait_s") {
			found = true
			if !strings.Contains(m.Why, "timing/steps_total") {
				t.Errorf("%+v does not name the key that the files have", m)
			}
		}
	}
	if !found {
		t.Errorf("the wait is known without timing/step_total, or not missed: %+v", log.Missing)
	}
}

// What is no finite number is left out, said, and taken for nothing.
func TestImportNaN(t *testing.T) {
	for name, word := range map[string]string{"nan": "nan", "infinity": "inf", "NumPy's": "np.float64(nan)"} {
		t.Run(name, func(t *testing.T) {
			log, err := edited(t, "openrlhf", "console.log", func(text []byte) []byte {
				return bytes.Replace(text, []byte("'timing/broadcast': "), []byte("'timing/broadcast': "+word+", 'was': "), 3)
			})
			if err != nil {
				t.Fatal(err)
			}
			warned := int64(0)
			for _, w := range log.Warnings {
				if strings.Contains(w.Text, "timing/broadcast is no finite number") {
					warned = w.Count
				}
			}
			if warned != 3 {
				t.Errorf("%d values were warned of, want 3: %+v", warned, log.Warnings)
			}
			for i, step := range log.Series {
				if known := step.SyncS.Known(); known != (i >= 3) {
					t.Errorf("step %d: sync known %v", step.Step, known)
				}
			}
		})
	}
}

// Files of two frameworks in one directory are refused with both their names, unless one is chosen.
func TestImportMixed(t *testing.T) {
	one, _ := unpack(t, "slime")
	other, _ := unpack(t, "roll")
	paths := []string{filepath.Join(one, "wandb"), filepath.Join(other, "wandb")}
	_, err := foreign.Read(context.Background(), paths, foreign.Options{})
	if err == nil || !strings.Contains(err.Error(), "slime") || !strings.Contains(err.Error(), "roll") {
		t.Fatalf("error %v, want one that names both", err)
	}
	log, err := foreign.Read(context.Background(), paths, foreign.Options{From: "roll"})
	if err != nil {
		t.Fatal(err)
	}
	said := false
	for _, w := range log.Warnings {
		said = said || strings.Contains(w.Text, "slime")
	}
	if !said {
		t.Errorf("no warning says that keys of slime were left out: %+v", log.Warnings)
	}
}

// A clock that goes back is said, and no period is taken from it.
func TestImportClockGoesBack(t *testing.T) {
	log, err := edited(t, "pipelinerl", "finetune.log", func(text []byte) []byte {
		lines := bytes.SplitAfter(text, []byte("\n"))
		for i := len(lines) / 2; i < len(lines); i++ { // summer time ends
			lines[i] = bytes.Replace(lines[i], []byte(" 22:"), []byte(" 21:"), 1)
		}
		return bytes.Join(lines, nil)
	})
	if err != nil {
		t.Fatal(err)
	}
	said := false
	for _, w := range log.Warnings {
		said = said || strings.Contains(w.Text, "clock goes back")
	}
	if !said {
		t.Errorf("no warning says that the clock goes back: %+v", log.Warnings)
	}
	for _, step := range log.Series {
		if step.PeriodS.Known() && (step.PeriodS.Value <= 0 || step.PeriodS.Value > 100) {
			t.Errorf("step %d has a period of %g s", step.Step, step.PeriodS.Value)
		}
	}
}

// A console is rounded and knows no time zone: where a tracker's file says the same, it counts for nothing.
func TestImportConsoleBesideTracker(t *testing.T) {
	dir, _ := unpack(t, "nemo-rl")
	ctx := context.Background()
	alone, err := foreign.Read(ctx, []string{filepath.Join(dir, "wandb")}, foreign.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, order := range [][]string{{"wandb", "console.log"}, {"console.log", "wandb"}} {
		both, err := foreign.Read(ctx, []string{filepath.Join(dir, order[0]), filepath.Join(dir, order[1])}, foreign.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range alone.Series {
			if got, want := both.Series[i].PeriodS, alone.Series[i].PeriodS; got != want {
				t.Fatalf("%v: step %d has a period of %+v, by the tracker alone %+v", order, i, got, want)
			}
			if got, want := both.Series[i].TimeS, alone.Series[i].TimeS; got != want {
				t.Fatalf("%v: step %d is at %+v, by the tracker alone %+v", order, i, got, want)
			}
		}
		if len(both.Warnings) > 0 {
			t.Errorf("%v: %+v: the same figure, rounded in one file, is no resume", order, both.Warnings)
		}
	}
}
