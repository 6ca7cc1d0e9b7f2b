package golden_test

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/explain/foreign"
)

// truthAt says what a figure of a step was in truth, in the framework's own notion; false where the
// truth has no such step.
type truthAt func(steps []truthStep, i int) (float64, bool)

// A step's period as trackers time it: to the end of the step, or to the end of its weight sync.
func toEnd(steps []truthStep, i int) (float64, bool) { return steps[i].Period, i > 0 }
func toSync(steps []truthStep, i int) (float64, bool) {
	if i == 0 || i+1 == len(steps) { // the last step's sync was not waited for
		return 0, false
	}
	return steps[i].End + steps[i].Sync - steps[i-1].End - steps[i-1].Sync, true
}

// overCycle is the mean over the train steps of a row that stands for several.
func overCycle(of truthAt, every int) truthAt {
	return func(steps []truthStep, i int) (float64, bool) {
		sum := 0.0
		for k := i; k < i+every; k++ {
			value, there := of(steps, k)
			if !there {
				return 0, false
			}
			sum += value
		}
		return sum / float64(every), true
	}
}

func ofGroups(steps []truthStep, i int) (float64, bool)   { return steps[i].Staleness, true }
func ofRollouts(steps []truthStep, i int) (float64, bool) { return steps[i].First, true }
func ofTokens(steps []truthStep, i int) (float64, bool)   { return steps[i].Token, true }
func preQueue(steps []truthStep, i int) (float64, bool)   { return steps[i].PQS, true }
func inQueue(steps []truthStep, i int) (float64, bool)    { return steps[i].IQS, true }
func largest(steps []truthStep, i int) (float64, bool)    { return steps[i].StalenessMax, true }

// figure compares one notion of every step with the truth.
type figure struct {
	notion foreign.Notion
	truth  truthAt
	// off is by how much a single step may differ, and what it may beside that by its size: the rounding
	// of what was logged. mean is for the mean over the run, where a step's figure is an estimate.
	off, relative, mean float64
}

const (
	exact    = 1e-9    // a float64 written in full
	single32 = 1.5e-7  // a float32, as TensorBoard keeps it, in sums and ratios of a few
	fourE    = 1.01e-4 // four digits after the first, in sums of a few
)

// splitMargin is by how much prime-rl's parts of staleness may be off in the mean: 5 of 40 steps have traces, and as many
// other steps would have given others (two standard errors, which a warning of the log says).
const splitMargin = 0.25

// importCase is a framework's files, or some of them, and what must come back.
type importCase struct {
	framework string
	// files are inside the archive, all of them for none.
	files string
	// name of the framework as the log has it, where it is another.
	as string
	// first is the step that a tracker counts the first by, every how many train steps a row is.
	first, every int64
	settings     []foreign.Setting
	figures      []figure
	// missing are all settings and notions that Log.Missing must name.
	missing []string
}

var bsc = []foreign.Setting{foreign.Batch, foreign.GroupSize, foreign.Concurrency}

func at(n foreign.Notion, truth truthAt, off, relative float64) figure {
	return figure{notion: n, truth: truth, off: off, relative: relative}
}

var importCases = []importCase{
	{framework: "verl-fa", files: "wandb", first: 1, every: 4, settings: append([]foreign.Setting{foreign.Queue}, bsc...), missing: []string{"pqs"},
		figures: []figure{at(foreign.Period, overCycle(toSync, 4), exact, 0), {notion: foreign.Staleness, truth: overCycle(ofGroups, 4), mean: 0.5}}},
	{framework: "verl-fa", files: "verl-fa.jsonl", first: 1, every: 4, settings: nil,
		figures: []figure{at(foreign.Period, overCycle(toSync, 4), exact, 0)}},
	{framework: "verl-fa", files: "console.log", first: 1, every: 4, settings: nil,
		figures: []figure{at(foreign.Period, overCycle(toSync, 4), exact, 0)}},
	{framework: "verl-v1", files: "wandb", first: 1, settings: []foreign.Setting{foreign.Batch, foreign.GroupSize},
		figures: []figure{at(foreign.Period, toSync, exact, 0), at(foreign.Staleness, ofRollouts, exact, 0), at(foreign.StalenessTop, largest, exact, 0)}},
	{framework: "prime-rl", first: 1, settings: bsc,
		figures: []figure{at(foreign.Period, toEnd, exact, 0), {notion: foreign.Staleness, truth: ofGroups, mean: 0.05},
			{notion: foreign.PreQueue, truth: preQueue, mean: splitMargin}, {notion: foreign.InQueue, truth: inQueue, mean: splitMargin}}},
	{framework: "prime-rl", files: "orchestrator", first: 1, missing: nil,
		figures: []figure{at(foreign.Staleness, ofRollouts, exact, 0)}},
	{framework: "skyrl", files: "wandb", first: 1, settings: bsc,
		figures: []figure{at(foreign.Period, toSync, exact, 0), at(foreign.Staleness, ofGroups, exact, 0), at(foreign.StalenessTop, largest, exact, 0)}},
	{framework: "skyrl", files: "tensorboard", first: 1,
		figures: []figure{at(foreign.Period, toSync, 0, single32), at(foreign.Staleness, ofGroups, 0, single32)}},
	{framework: "trl", files: "wandb", first: 1, settings: bsc, figures: []figure{at(foreign.Period, toSync, 1e-6, 0)}},
	{framework: "trl", files: "trainer_state.json", first: 1},
	{framework: "trl", files: "console.log"},

	{framework: "areal", first: 0, settings: append([]foreign.Setting{foreign.Queue}, bsc...), missing: []string{},
		figures: []figure{at(foreign.Period, toSync, 0, single32), at(foreign.PreQueue, preQueue, exact, 0), at(foreign.InQueue, inQueue, exact, 0), at(foreign.Staleness, ofGroups, exact, 0), at(foreign.StalenessTop, largest, exact, 0), {notion: foreign.TokenStaleness, truth: ofTokens, off: 0.35, mean: 0.05}}},
	{framework: "areal", files: "wandb", first: 0, settings: bsc, missing: []string{"staleness_mean", "pqs", "tail_multiplier"},
		figures: []figure{at(foreign.Period, toSync, exact, 0)}},
	{framework: "areal", files: "tensorboard", first: 0, settings: []foreign.Setting{foreign.Batch}, missing: []string{"concurrency_rollouts", "group_size", "queue_rollouts", "staleness_mean", "pqs", "tail_multiplier"},
		figures: []figure{at(foreign.Period, toSync, 0, single32)}},
	{framework: "areal", files: "perf_tracer", first: 0,
		figures: []figure{at(foreign.Period, toSync, 1e-5, 0)}},
	{framework: "areal", files: "console.log", first: 0, settings: []foreign.Setting{foreign.Batch}, missing: []string{"concurrency_rollouts", "group_size", "queue_rollouts", "staleness_mean", "pqs", "tail_multiplier"},
		figures: []figure{at(foreign.Period, toSync, 0, fourE)}},

	{framework: "pipelinerl", first: 1, settings: []foreign.Setting{foreign.Batch, foreign.GroupSize, foreign.Queue}, missing: []string{"concurrency_rollouts", "sync_s", "staleness_mean", "pqs"},
		figures: []figure{at(foreign.Period, toEnd, 1e-6, 0), at(foreign.StalenessTop, largest, exact, 0)}},
	{framework: "pipelinerl", files: "finetune.log", first: 1, settings: []foreign.Setting{foreign.Batch}, missing: []string{"concurrency_rollouts", "group_size", "queue_rollouts", "sync_s", "staleness_mean", "pqs", "tail_multiplier"},
		figures: []figure{at(foreign.Period, toEnd, 1.01e-3, 0), at(foreign.StalenessTop, largest, 1e-3, 0)}},

	{framework: "slime", files: "wandb", first: 0, settings: append([]foreign.Setting{foreign.Queue}, bsc...), missing: []string{"staleness_mean", "pqs", "tail_multiplier"},
		figures: []figure{at(foreign.Period, toEnd, exact, 0)}},
	{framework: "slime", files: "tensorboard", first: 0, missing: []string{"concurrency_rollouts", "batch_rollouts", "group_size", "queue_rollouts", "staleness_mean", "pqs", "tail_multiplier"},
		figures: []figure{at(foreign.Period, toEnd, 0, single32)}},
	{framework: "slime", files: "console.log", first: 0, missing: []string{"concurrency_rollouts", "batch_rollouts", "group_size", "queue_rollouts", "staleness_mean", "pqs", "tail_multiplier"},
		figures: []figure{at(foreign.Period, toEnd, exact, 0)}},

	{framework: "nemo-rl", files: "wandb", first: 1, settings: []foreign.Setting{foreign.Batch, foreign.GroupSize}, missing: []string{"concurrency_rollouts", "pqs", "tail_multiplier"},
		figures: []figure{at(foreign.Period, toSync, exact, 0), at(foreign.Staleness, ofGroups, exact, 0)}},
	{framework: "nemo-rl", files: "tensorboard", first: 1, missing: []string{"concurrency_rollouts", "batch_rollouts", "group_size", "queue_rollouts", "pqs", "tail_multiplier"},
		figures: []figure{at(foreign.Period, toSync, 0, single32), at(foreign.Staleness, ofGroups, 0, single32)}},
	{framework: "nemo-rl", files: "console.log", first: 1, missing: []string{"concurrency_rollouts", "batch_rollouts", "group_size", "queue_rollouts", "pqs", "tail_multiplier"},
		figures: []figure{at(foreign.Period, toSync, 0.00501, 0), at(foreign.Staleness, ofGroups, 0.00501, 0)}},
	{framework: "nemo-rl-sc", as: "nemo-rl", files: "wandb", first: 1, settings: append([]foreign.Setting{foreign.Queue}, bsc...), missing: []string{"staleness_mean", "pqs", "tail_multiplier"},
		figures: []figure{at(foreign.Period, toSync, exact, 0)}},
	{framework: "nemo-rl-sc", as: "nemo-rl", first: 1, settings: append([]foreign.Setting{foreign.Queue}, bsc...), missing: []string{"staleness_mean", "pqs", "tail_multiplier"},
		figures: []figure{at(foreign.Period, toSync, 0, single32), at(foreign.StalenessTop, largest, exact, 0)}},
	{framework: "nemo-rl-sc", as: "nemo-rl", files: "console.log", first: 1, missing: []string{"concurrency_rollouts", "batch_rollouts", "group_size", "queue_rollouts", "staleness_mean", "pqs", "tail_multiplier"},
		figures: []figure{at(foreign.Period, toSync, 0.00501, 0), at(foreign.StalenessTop, largest, exact, 0)}},

	{framework: "openrlhf", files: "wandb", first: 1, settings: append([]foreign.Setting{foreign.Queue}, bsc[:2]...), missing: []string{"concurrency_rollouts", "staleness_mean", "pqs", "tail_multiplier"},
		figures: []figure{at(foreign.Period, toSync, exact, 0)}},
	{framework: "openrlhf", files: "tensorboard", first: 1, settings: []foreign.Setting{foreign.Batch}, missing: []string{"concurrency_rollouts", "group_size", "queue_rollouts", "staleness_mean", "pqs", "tail_multiplier"},
		figures: []figure{at(foreign.Period, toSync, 0, single32)}},
	{framework: "openrlhf", files: "console.log", first: 1, settings: []foreign.Setting{foreign.Batch, foreign.Queue}, missing: []string{"concurrency_rollouts", "group_size", "staleness_mean", "pqs", "tail_multiplier"},
		figures: []figure{at(foreign.Period, toSync, exact, 0)}},

	{framework: "roll", files: "wandb", first: 0, settings: append([]foreign.Setting{foreign.Queue}, bsc...), missing: []string{"pqs", "tail_multiplier"},
		figures: []figure{at(foreign.Period, toEnd, exact, 0), at(foreign.Staleness, ofGroups, exact, 0)}},
	{framework: "roll", files: "tensorboard", first: 0, missing: []string{"concurrency_rollouts", "batch_rollouts", "group_size", "queue_rollouts", "pqs", "tail_multiplier"},
		figures: []figure{at(foreign.Period, toEnd, 0, single32), at(foreign.Staleness, ofGroups, 0, single32)}},
	{framework: "roll", files: "log_rank_DRIVER_0_1.log", first: 0, missing: []string{"concurrency_rollouts", "batch_rollouts", "group_size", "queue_rollouts", "pqs", "tail_multiplier"},
		figures: []figure{at(foreign.Period, toEnd, exact, 0), at(foreign.Staleness, ofGroups, exact, 0)}},
}

// What a run was comes back from what its framework's own libraries wrote, within the rounding of
// that; what cannot be known is named.
func TestImport(t *testing.T) {
	for _, c := range importCases {
		t.Run(c.framework+"/"+c.files, func(t *testing.T) {
			dir, of := unpack(t, c.framework)
			log, err := foreign.Read(context.Background(), []string{filepath.Join(dir, c.files)}, foreign.Options{})
			if err != nil {
				t.Fatal(err)
			}
			c.compare(t, log, of)
		})
	}
}

func (c importCase) compare(t *testing.T, log *foreign.Log, of truth) {
	t.Helper()
	if want := c.name(); log.Framework != want {
		t.Errorf("framework %s, want %s", log.Framework, want)
	}
	every := max(c.every, 1)
	if got, want := len(log.Series), len(of.Steps)/int(every); got != want {
		t.Errorf("%d steps, want %d", got, want)
	}
	if log.Definition == "" {
		t.Error("no definition says how staleness was turned into ours")
	}
	for _, s := range c.settings {
		got, want := *s.At(&log.Settings), of.setting(s)
		if !got.Known() || got.Value != want {
			t.Errorf("%s = %+v, want %g", s.Name, got, want)
		}
	}
	for _, f := range c.figures {
		c.compareFigure(t, log, of, f)
	}
	if c.missing == nil {
		return
	}
	var named []string
	for _, m := range log.Missing {
		name, _, _ := strings.Cut(m.What, " ")
		named = append(named, name)
		if m.Why == "" {
			t.Errorf("%s is missing, and nothing says why", m.What)
		}
	}
	slices.Sort(named)
	want := slices.Sorted(slices.Values(c.missing))
	if !slices.Equal(named, want) {
		t.Errorf("missing are %q, want %q", named, want)
	}
}

func (c importCase) name() string {
	if c.as != "" {
		return c.as
	}
	return c.framework
}

// setting is the truth of a setting.
func (of truth) setting(s foreign.Setting) float64 {
	switch s.Name {
	case foreign.Batch.Name:
		return float64(of.Settings.Batch)
	case foreign.GroupSize.Name:
		return float64(of.Settings.GroupSize)
	case foreign.Concurrency.Name:
		return float64(of.Settings.Concurrency)
	case foreign.Queue.Name:
		return float64(of.Settings.Queue)
	}
	return math.NaN()
}

func (c importCase) compareFigure(t *testing.T, log *foreign.Log, of truth, f figure) {
	t.Helper()
	compared, worst := 0, 0.0
	sum, truthSum := 0.0, 0.0
	for i := range log.Series {
		step := &log.Series[i]
		got := *f.notion.At(step)
		place := int((step.Step - c.first) * max(c.every, 1))
		if place < 0 || place >= len(of.Steps) {
			t.Fatalf("%s: step %d is none of the run's", f.notion.Name, step.Step)
		}
		want, there := f.truth(of.Steps, place)
		if !there || !got.Known() {
			continue
		}
		compared++
		sum, truthSum = sum+got.Value, truthSum+want
		off := math.Abs(got.Value - want)
		worst = max(worst, off)
		if t.Failed() {
			continue // one step tells
		}
		if f.mean == 0 && off > f.off+f.relative*math.Abs(want) || f.mean > 0 && f.off > 0 && off > f.off {
			t.Errorf("%s of step %d = %.9g (%s), want %.9g", f.notion.Name, step.Step, got.Value, got.From, want)
		}
	}
	if want := len(log.Series) - 2; compared < want {
		t.Errorf("%s: %d steps compared, want at least %d", f.notion.Name, compared, want)
		return
	}
	n := float64(compared)
	if f.mean > 0 && math.Abs(sum-truthSum)/n > f.mean {
		t.Errorf("%s: mean %.4f, in truth %.4f", f.notion.Name, sum/n, truthSum/n)
	}
	t.Logf("%s: mean %.4f, in truth %.4f, largest difference of a step %.2g", f.notion.Name, sum/n, truthSum/n, worst)
}

// Where files hold single rollouts, they are the run's.
func TestImportRollouts(t *testing.T) {
	for _, framework := range withRollouts {
		t.Run(framework, func(t *testing.T) {
			dir, of := unpack(t, framework)
			log, err := foreign.Read(context.Background(), []string{dir}, foreign.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if len(log.Rollouts) < of.Settings.Batch {
				t.Fatalf("%d rollouts", len(log.Rollouts))
			}
			known := map[string]int{} // rollouts by what both have
			for _, r := range of.Rollouts {
				known[versionTokensReward(float64(r.Spans[0][0]), float64(r.Tokens), r.Reward)]++
			}
			for _, r := range log.Rollouts {
				key := versionTokensReward(r.Start.Value, r.Tokens.Value, r.Reward.Value)
				if known[key]--; known[key] < 0 {
					t.Fatalf("%+v is no rollout of the run", r)
				}
			}
			if framework != "pipelinerl" {
				return
			}
			longest, all := map[int]int{}, 0
			n := 0
			for _, r := range of.Rollouts {
				if r.ReadyAt == 0 {
					continue
				}
				longest[r.Group] = max(longest[r.Group], r.Tokens)
				all, n = all+r.Tokens, n+1
			}
			sum := 0
			for _, most := range longest {
				sum += most
			}
			want := float64(sum) / float64(len(longest)) / (float64(all) / float64(n))
			if got := log.Series[3].TailMultiplier; !got.Known() || !near(got.Value, want, 1e-9) {
				t.Errorf("tail %+v, want %g", got, want)
			}
		})
	}
}

func versionTokensReward(version, tokens, reward float64) string {
	return fmt.Sprint(version, tokens, reward)
}
