package foreign

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
)

// wantFigure is what a step's figure should be.
type wantFigure struct {
	notion Notion
	value  float64
	origin Origin
}

func settingsBy(pairs ...any) map[string]float64 {
	out := map[string]float64{}
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i].(Setting).Name] = pairs[i+1].(float64)
	}
	return out
}

// What is converted between a framework's notions and ours, by figures that differ by every factor.
func TestConversions(t *testing.T) {
	for _, c := range []struct {
		name, framework, config, rows string
		settings                      map[string]float64
		figures                       []wantFigure
		missing                       []string
	}{
		{name: "verl FA, the sync within the step", framework: "verl-fa",
			config:   "actor_rollout_ref: {rollout: {n: 8}, actor: {ppo_mini_batch_size: 16}}\nasync_training: {trigger_parameter_sync_step: 4, require_batches: 2}\n",
			rows:     `{"_step":1,"fully_async/trainer/idle_ratio":0.5,"timing_s/step":40,"timing_s/gen":20,"timing_s/timing_s/param_sync":4}`,
			settings: settingsBy(Batch, 256.0, GroupSize, 8.0, SyncEvery, 4.0),
			figures:  []wantFigure{{Period, 10, Inferred}, {Train, 4, Inferred}, {Wait, 5, Inferred}, {Sync, 4, Logged}},
			missing:  []string{"staleness_mean", "pqs", "tail_multiplier", "concurrency_rollouts"}},
		{name: "verl FA as it was, the sync beside the step", framework: "verl-fa",
			config:  "actor_rollout_ref: {rollout: {n: 8}}\nasync_training: {trigger_parameter_sync_step: 2}\n",
			rows:    `{"_step":1,"trainer/idle_ratio":0.5,"rollouter/idle_ratio":0.1,"timing_s/step":40,"timing_s/gen":20,"timing_s/param_sync":4}`,
			figures: []wantFigure{{Period, 22, Inferred}, {Train, 10, Inferred}, {TrainerIdle, 0.5, Logged}, {RolloutIdle, 0.1, Logged}}},
		{name: "verl FA by the log's clock, a row for four steps", framework: "verl-fa",
			config:  "actor_rollout_ref: {rollout: {n: 8}}\nasync_training: {trigger_parameter_sync_step: 4}\n",
			rows:    `{"_step":1,"_timestamp":100,"fully_async/trainer/idle_ratio":0.5}` + "\n" + `{"_step":2,"_timestamp":140,"fully_async/trainer/idle_ratio":0.5}`,
			figures: []wantFigure{{Period, 10, Inferred}}},
		{name: "verl v1 counts syncs", framework: "verl-v1",
			config: "data: {train_batch_size: 64}\nactor_rollout_ref: {rollout: {n: 4}}\ntrainer: {v1: {trainer_mode: separate_async, separate_async: {parameter_sync_step: 4, num_warmup_batches: 2}, sampler: {max_off_policy_threshold: 8}}}\n",
			rows: `{"step":3,"data":{"training/global_step":3,"training/off_policy/trajectory_staleness/mean":0.5,"training/off_policy/trajectory_staleness_worst/mean":1.5,` +
				`"training/off_policy/trajectory_staleness_worst/max":3,"training/off_policy/evicted_samples":2,"timing_s/step":40,"timing_s/gen":8,"timing_s/update_weights":4}}`,
			settings: settingsBy(Batch, 64.0, Concurrency, 512.0, SyncEvery, 4.0, Budget, 8.0, Queue, 0.0),
			figures:  []wantFigure{{Staleness, 7.5, Inferred}, {StalenessTop, 15, Inferred}, {Period, 10, Inferred}, {Train, 7, Inferred}, {Dropped, 2, Inferred}},
			missing:  []string{"pqs", "tail_multiplier"}},
		{name: "verl v1 with a sync a step", framework: "verl-v1",
			config:   "data: {train_batch_size: 64}\nactor_rollout_ref: {rollout: {n: 4}}\ntrainer: {v1: {trainer_mode: colocate_async, colocate_async: {num_warmup_batches: 1}, separate_async: {parameter_sync_step: 4}}}\n",
			rows:     `{"training/global_step":3,"training/off_policy/trajectory_staleness_worst/mean":1.5,"training/off_policy/trajectory_staleness_worst/max":3,"timing_s/step":40,"timing_s/gen":8}`,
			settings: settingsBy(Batch, 256.0, Concurrency, 256.0, SyncEvery, 1.0),
			figures:  []wantFigure{{Staleness, 1.5, Logged}, {StalenessTop, 3, Logged}}},
		{name: "SkyRL's tail by the spread within groups", framework: "skyrl",
			config: "trainer: {train_batch_size: 32, policy_mini_batch_size: 16, fully_async: {enabled: true, max_staleness_steps: 3, num_parallel_generation_workers: 24}}\ngenerator: {n_samples_per_prompt: 5}\n",
			rows: `{"_step":1,"async/staleness_mean":2,"generate/group_completion_time_mean":30,"generate/intra_group_completion_time_std_mean":6,"generate/intra_group_completion_time_cv_mean":0.4,` +
				`"async/gen_buffer_qsize_at_wait_start":3,"async/num_groups_dropped":2}`,
			settings: settingsBy(Batch, 80.0, Concurrency, 120.0, Queue, 320.0, Budget, 3.0),
			figures:  []wantFigure{{Staleness, 2, Logged}, {Tail, 2, Inferred}, {RolloutMean, 15, Inferred}, {Queued, 15, Inferred}, {Filtered, 10, Inferred}},
			missing:  []string{"pqs", "period_s"}},
		{name: "prime-rl's parts are of rollouts", framework: "prime-rl", config: "batch_size: 64\ngroup_size: 8\n",
			rows:     `{"step":5,"time/step":7,"time/wait_for_policy":0,"off_policy/mean":3,"off_policy/max":6,"off_policy/in_flight/mean":2,"off_policy/in_queue/mean":1,"concurrency/max_inflight":100}`,
			settings: settingsBy(Batch, 64.0, GroupSize, 8.0, Concurrency, 100.0),
			figures:  []wantFigure{{Staleness, 3, Logged}, {StalenessTop, 6, Logged}, {Period, 7, Logged}},
			missing:  []string{"pqs", "wait_s", "train_s", "tail_multiplier"}},
		{name: "prime-rl's parts are split at an engine's version", framework: "prime-rl", config: "batch_size: 64\ngroup_size: 1\n",
			rows:    `{"step":5,"time/step":7,"time/wait_for_policy":0,"off_policy/mean":3,"off_policy/in_flight/mean":2,"off_policy/in_queue/mean":1}`,
			figures: []wantFigure{{Staleness, 3, Logged}}, missing: []string{"pqs"}},
		{name: "prime-rl's gauges come beside the steps", framework: "prime-rl", config: "batch_size: 64\ngroup_size: 8\n",
			rows: `{"_step":7,"step":5,"off_policy/mean":3,"time/wait_for_policy":0,"_timestamp":100}` + "\n" + `{"_step":8,"dispatcher/inflight/train":90,"_timestamp":110}` + "\n" +
				`{"_step":9,"dispatcher/inflight/train":110,"_timestamp":120}`,
			figures: []wantFigure{{InFlight, 110, Logged}, {Staleness, 3, Logged}}},
		{name: "TRL counts syncs", framework: "trl",
			config: "num_generations: 8\nper_device_train_batch_size: 4\ngradient_accumulation_steps: 8\nworld_size: 2\nmax_inflight_tasks: -1\nmax_staleness: 3\nweight_sync_steps: 2\nqueue_maxsize: 1024\n",
			rows: `{"train/global_step":1,"train/sample/staleness_mean":1.5,"train/sample/staleness_max":2,"train/sample/time_in_queue_s":20,"train/perf/step_s":10,"train/perf/rollout_wait_s":2,"train/sample/dropped_stale_total":1}` + "\n" +
				`{"train/global_step":2,"train/sample/staleness_mean":1.5,"train/sample/staleness_max":2,"train/sample/time_in_queue_s":20,"train/perf/step_s":10,"train/perf/rollout_wait_s":2,"train/sample/dropped_stale_total":5}`,
			settings: settingsBy(Batch, 64.0, Concurrency, 192.0, Queue, 1024.0, SyncEvery, 2.0, Budget, 3.0),
			figures:  []wantFigure{{Staleness, 3.5, Inferred}, {StalenessTop, 5, Inferred}, {InQueue, 2, Inferred}, {Period, 10, Logged}, {TrainerIdle, 0.2, Inferred}, {Wait, 2, Logged}},
			missing:  []string{"pqs", "tail_multiplier", "train_s"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := []string{written(t, "config.yaml", c.config), written(t, "history.jsonl", c.rows+"\n")}
			log, err := Read(context.Background(), files, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if log.Framework != c.framework {
				t.Fatalf("it is taken as %s", log.Framework)
			}
			for name, value := range c.settings {
				if got := *SettingsKnown[settingIndex(name)].At(&log.Settings); !got.Known() || got.Value != value {
					t.Errorf("%s = %+v, want %g", name, got, value)
				}
			}
			last := log.Series[len(log.Series)-1]
			for _, w := range c.figures {
				if got := *w.notion.At(&last); !near(got.Value, w.value) || got.Origin != w.origin {
					t.Errorf("%s = %+v, want %g, %s", w.notion.Name, got, w.value, w.origin)
				}
			}
			for _, name := range c.missing {
				if m := missing(log, name); m == nil || m.Why == "" {
					t.Errorf("%s is not named as missing: %+v", name, log.Missing)
				}
			}
		})
	}
}

// The tail of a lognormal against draws that are summed up otherwise: of two, E[max]/E[one] is 2Φ(σ/√2).
func TestLognormalTail(t *testing.T) {
	for _, sigma := range []float64{0.1, 0.5, 1, 2} {
		want := 1 + math.Erf(sigma/2)
		if got := lognormalTail(sigma, 2); math.Abs(got-want) > 1e-9 {
			t.Errorf("σ %g: %g, want %g", sigma, got, want)
		}
	}
	if got := lognormalTail(1, 1); math.Abs(got-1) > 1e-9 {
		t.Errorf("of one: %g", got)
	}
}

// A log of every tenth step says the same as one of every step: its counters rise by ten steps from row to row.
func TestRowsOfEveryTenthStep(t *testing.T) {
	for _, every := range []int{1, 10} {
		var b strings.Builder
		for i := every; i <= 60; i += every {
			fmt.Fprintf(&b, `{"_step":%d,"train/global_step":%d,"train/perf/step_s":20,"train/sample/dropped_stale_total":%d}`+"\n", i, i, 8*i)
		}
		log, err := Read(context.Background(), []string{written(t, "h.jsonl", b.String())}, Options{From: "trl"})
		if err != nil {
			t.Fatal(err)
		}
		if got := log.Series[3].Dropped; !got.Known() || got.Value != 8 {
			t.Errorf("every %d: dropped %+v, want 8 a step", every, got)
		}
		if got := stepsOf(log); got != 60 {
			t.Errorf("every %d: %d train steps, want 60", every, got)
		}
	}
}

// The time between a crash and a resume is no period where the clock alone says it.
func TestPeriodsAroundACrash(t *testing.T) {
	var b strings.Builder
	for i := 1; i <= 12; i++ {
		at := 1000 + 100*i
		if i > 8 {
			at += 36_000
		}
		fmt.Fprintf(&b, `{"_step":%d,"_timestamp":%d,"stats/completed_steps":%d,"stats/time_waiting_for_data":%d}`+"\n", i, at, i, i)
	}
	log, err := Read(context.Background(), []string{written(t, "h.jsonl", b.String())}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range log.Series {
		if known := i > 0 && i != 8; s.PeriodS.Known() != known || known && s.PeriodS.Value != 100 {
			t.Errorf("step %d: period %+v", s.Step, s.PeriodS)
		}
	}
	if len(log.Warnings) != 1 || log.Warnings[0].Count != 1 || !strings.Contains(log.Warnings[0].Text, "as after a crash") {
		t.Errorf("warnings %+v", log.Warnings)
	}
}
