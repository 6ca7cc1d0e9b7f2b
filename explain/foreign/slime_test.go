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

// slimeHistory is a history of slime's with four train steps a rollout.
func slimeHistory() string {
	var b strings.Builder
	for rollout := range 6 {
		fmt.Fprintf(&b, `{"_timestamp":%d,"rollout/step":%d,"perf/step_time":100,"perf/train_time":60}`+"\n", 1000+100*rollout, rollout)
		for i := range 4 {
			fmt.Fprintf(&b, `{"_timestamp":%d,"train/step":%d,"train/pg_clipfrac":%g}`+"\n", 1001+100*rollout+i, 4*rollout+i, 0.1*float64(rollout)+0.01*float64(i))
		}
	}
	return b.String()
}

// The train steps of a rollout are figures of that rollout, averaged.
func TestSlimeWithSeveralTrainStepsARollout(t *testing.T) {
	for name, config := range map[string]string{"": "", "by its number": "num_steps_per_rollout: 4\n",
		"by its batches": "rollout_batch_size: 16\nn_samples_per_prompt: 8\nglobal_batch_size: 32\n", "always in train steps": "wandb_always_use_train_step: true\nnum_steps_per_rollout: 4\n"} {
		t.Run(name, func(t *testing.T) {
			text := slimeHistory()
			if name == "always in train steps" {
				for rollout := 5; rollout > 0; rollout-- {
					text = strings.Replace(text, fmt.Sprintf(`"rollout/step":%d,`, rollout), fmt.Sprintf(`"rollout/step":%d,`, 4*rollout), 1)
				}
			}
			dir := filepath.Dir(written(t, "history.jsonl", text))
			if err := os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(config), 0o600); err != nil {
				t.Fatal(err)
			}
			log, err := Read(context.Background(), []string{dir}, Options{From: "slime"})
			if err != nil {
				t.Fatal(err)
			}
			if len(log.Series) != 6 {
				t.Fatalf("%d steps, want 6", len(log.Series))
			}
			for i, s := range log.Series {
				if want := 0.1*float64(i) + 0.015; math.Abs(s.ClipFraction.Value-want) > 1e-9 || s.PeriodS.Value != 100 || s.PeriodS.Origin != Logged {
					t.Errorf("step %d: clip fraction %+v (want %g), period %+v", i, s.ClipFraction, want, s.PeriodS)
				}
			}
			if len(log.Warnings) > 0 {
				t.Errorf("warnings %+v", log.Warnings)
			}
		})
	}
}
