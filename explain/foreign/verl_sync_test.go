package foreign

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// verlSteps are rows of verl's file logger, with keys beside those that all of its trainers log.
func verlSteps(beside string) string {
	var b strings.Builder
	for i := range 5 {
		fmt.Fprintf(&b, `{"step":%d,"data":{"training/global_step":%d,"critic/score/mean":0.5,"actor/pg_clipfrac":0.01,"response_length/mean":300,"timing_s/gen":20,"timing_s/step":30,"timing_s/update_weights":2%s}}`+"\n", i+1, i+1, beside)
	}
	return b.String()
}

// A log of verl's synchronous trainer is of neither asynchronous one, by whatever name it is given: the time that it
// generates would be taken for a trainer that waits.
func TestVerlSynchronousIsRefused(t *testing.T) {
	const config = "actor_rollout_ref: {rollout: {n: 8}}\ntrainer: {use_v1: false, v1: {trainer_mode: sync}}\n"
	for _, from := range []string{"", "verl", "verl-v1", "verl-fa"} {
		for _, withConfig := range []bool{false, true} {
			files := []string{written(t, "run.jsonl", verlSteps(""))}
			if withConfig {
				files = append(files, written(t, "config.yaml", config))
			}
			if _, err := Read(t.Context(), files, Options{From: from}); !errors.Is(err, errVerlSynchronous) {
				t.Errorf("--from %q, config %v: %v", from, withConfig, err)
			}
		}
	}
	for framework, beside := range map[string]string{"verl-v1": `,"training/off_policy/trajectory_staleness_worst/mean":1`, "verl-fa": `,"fully_async/trainer/idle_ratio":0.5`} {
		log, err := Read(t.Context(), []string{written(t, filepath.Join(framework, "run.jsonl"), verlSteps(beside))}, Options{})
		if err != nil || log.Framework != framework {
			t.Errorf("%s: %v", framework, err)
		}
	}
}
