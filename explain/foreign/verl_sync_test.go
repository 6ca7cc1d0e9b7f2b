package foreign

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// verlSteps are rows of verl's file logger, with keys beside those that all of its trainers log.
func verlSteps(beside string) string {
	var b strings.Builder
	for i := range 5 {
		fmt.Fprintf(&b, `{"step":%d,"data":{"training/global_step":%d,"critic/score/mean":0.5,"actor/pg_clipfrac":0.01,"response_length/mean":300,"response_length/max":3000,`+
			`"timing_s/gen":20,"timing_s/old_log_prob":3,"timing_s/update_actor":4,"timing_s/step":30,"timing_s/update_weights":2%s}}`+"\n", i+1, i+1, beside)
	}
	return b.String()
}

// verlConsole are the same steps as verl prints them, after a validation that has no step's figures.
func verlConsole() string {
	var b strings.Builder
	b.WriteString("(TaskRunner pid=7) step:0 - val-core/task/acc/mean@1:np.float64(0.5)\n")
	for i := range 5 {
		fmt.Fprintf(&b, "(TaskRunner pid=7) step:%d - training/global_step:%d - critic/score/mean:0.5 - actor/pg_clipfrac:np.float64(0.01) - response_length/mean:300.0 - "+
			"response_length/max:3000.0 - timing_s/gen:20.0 - timing_s/old_log_prob:3.0 - timing_s/update_actor:4.0 - timing_s/step:30.0 - timing_s/update_weights:2.0\n", i+1, i+1)
	}
	return b.String()
}

// A log of verl's synchronous trainer is of neither asynchronous one, by whatever name it is given: the time that it
// generates would be taken for a trainer that waits.
func TestVerlSynchronousIsKnown(t *testing.T) {
	const config = "data: {train_batch_size: 512}\nactor_rollout_ref: {rollout: {n: 8, nnodes: 1, n_gpus_per_node: 8}}\n" +
		"trainer: {nnodes: 2, n_gpus_per_node: 8, use_v1: false, v1: {trainer_mode: sync}}\n"
	for kind, text := range map[string]string{"run.jsonl": verlSteps(""), "run.log": verlConsole()} {
		for _, from := range []string{"", "verl", "verl-v1", "verl-fa", "verl-sync"} {
			for _, withConfig := range []bool{false, true} {
				files := []string{written(t, kind, text)}
				if withConfig {
					files = append(files, written(t, "config.yaml", config))
				}
				checkSynchronous(t, fmt.Sprintf("%s, --from %q, config %v", kind, from, withConfig), files, from, withConfig)
			}
		}
	}
	for framework, beside := range map[string]string{"verl-v1": `,"training/off_policy/trajectory_staleness_worst/mean":1`, "verl-fa": `,"fully_async/trainer/idle_ratio":0.5`} {
		log, err := Read(t.Context(), []string{written(t, filepath.Join(framework, "run.jsonl"), verlSteps(beside))}, Options{})
		if err != nil || log.Framework != framework || log.Settings.SharedGPUs {
			t.Errorf("%s: %v", framework, err)
		}
	}
}

// checkSynchronous reads a log of verlSteps, and compares what is found with what they say.
func checkSynchronous(t *testing.T, name string, files []string, from string, withConfig bool) {
	t.Helper()
	log, err := Read(t.Context(), files, Options{From: from})
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	last := log.Series[len(log.Series)-1]
	if log.Framework != "verl-sync" || log.Settings.Policy != "synchronous" || !log.Settings.SharedGPUs || withConfig && log.Settings.BatchRollouts.Value != 8*512 {
		t.Errorf("%s: read as %s, policy %q, settings %+v", name, log.Framework, log.Settings.Policy, log.Settings)
	}
	for _, f := range []struct {
		name string
		got  Figure
		want float64
	}{{"period", last.PeriodS, 30}, {"generation", last.GenerateS, 20}, {"log-probs", last.LogProbsS, 3}, {"training", last.TrainS, 4}, {"sync", last.SyncS, 2},
		{"busy slots", last.SlotsBusy, 0.1}, {"staleness", last.StalenessMean, 0}} {
		if !f.got.Known() || f.got.Value != f.want {
			t.Errorf("%s: %s is %+v, want %g", name, f.name, f.got, f.want)
		}
	}
}

// The v1 trainer logs its off-policy keys in every mode: the mode says whether its engines share the trainer's GPUs.
func TestVerlV1Modes(t *testing.T) {
	const v1 = `,"training/off_policy/trajectory_staleness_worst/mean":0`
	for _, c := range []struct {
		mode, beside, framework string
		shared                  bool
	}{
		{"sync", v1, "verl-sync", true},
		{"colocate_async", v1, "verl-v1", true},
		{"separate_async", v1, "verl-v1", false},
		{"", v1 + `,"timing_s/switch_to_rollout":1`, "verl-v1", true},
		{"", v1, "verl-v1", false},
	} {
		files := []string{written(t, "run.jsonl", verlSteps(c.beside))}
		if c.mode != "" {
			files = append(files, written(t, "config.yaml", "trainer: {v1: {trainer_mode: "+c.mode+"}}\n"))
		}
		log, err := Read(t.Context(), files, Options{})
		if err != nil || log.Framework != c.framework || log.Settings.SharedGPUs != c.shared {
			t.Errorf("mode %q, %s: %+v, %v", c.mode, c.beside, log, err)
		}
	}
}
