package reproduce

import (
	"fmt"
	"strings"

	"github.com/headway-rl/headway/predict/theory"
)

// verlFamily is what the runs of one experiment have in common: facts of verl's
// documentation and of the scripts beside it.
type verlFamily struct {
	name, title string
	// model is a preset's name; engineGPUs the tensor parallel size of an engine, and
	// ranksGPUs the GPUs that share one sequence in training.
	model                 string
	engineGPUs, ranksGPUs int
	// capTokens of a response, groups of a batch, prompts of an optimizer step.
	capTokens, groups, mini int
	// offloadApart says that the trainer moves its state to the host and back also where it
	// has GPUs of its own: what the published script sets.
	offloadApart bool
	note         string
}

// verlGroup is rollout.n, and verlPromptsPerEngine the prompts that verl's rollouter
// keeps running on one engine.
const (
	verlGroup            = 16
	verlPromptsPerEngine = 16
)

// verlFamilies are the published experiments; the first is the one whose colocated
// row is the calibration asked for.
var verlFamilies = []verlFamily{
	{name: "7b-128", title: "Qwen2.5-Math-7B, 128 H20", model: "qwen2.5-7b", engineGPUs: 4, ranksGPUs: 4, capTokens: 28672, groups: 512, mini: 32},
	{name: "7b-64", title: "Qwen2.5-Math-7B, 64 H20", model: "qwen2.5-7b", engineGPUs: 4, ranksGPUs: 4, capTokens: 28672, groups: 512, mini: 32},
	{name: "7b-32", title: "Qwen2.5-Math-7B, 32 H20", model: "qwen2.5-7b", engineGPUs: 4, ranksGPUs: 4, capTokens: 28672, groups: 512, mini: 32},
	{name: "30b-128", title: "Qwen3-30B-A3B-Base, 128 H20", model: "qwen3-30b-a3b", engineGPUs: 4, ranksGPUs: 4, capTokens: 8192, groups: 512, mini: 128, offloadApart: true,
		note: "reference log-probs in both modes; the trainer offloads in both"},
	{name: "retool-32", title: "Qwen2.5-7B with tools, 32 H20", model: "qwen2.5-7b", engineGPUs: 4, ranksGPUs: 4, capTokens: 16384, groups: 64, mini: 16,
		note: "tool time is not published: it counts as generation; that its colocated run offloads is assumed, its script was not found"},
}

// verlRow is one published run.
type verlRow struct {
	family               verlFamily
	mode                 string
	gpus, rollout, train int
	threshold            float64
	partial              bool
	require, trigger     int
	stepS, genS, updateS float64
	logProbS, refS       theory.Figure
	hours                [4]theory.Figure
}

// name of the row by its inputs.
func (r verlRow) name() string {
	switch {
	case r.mode == "colocate_sync":
		return fmt.Sprintf("%s: colocated", r.family.title)
	case r.mode == "stream_off_policy":
		return fmt.Sprintf("%s: streamed, %d:%d", r.family.title, r.rollout, r.train)
	}
	text := fmt.Sprintf("%s: partial, %d:%d, θ %g", r.family.title, r.rollout, r.train, r.threshold)
	if r.mode == "require_batches" {
		text += fmt.Sprintf(", require_batches %d", r.require)
	}
	return text
}

// readVerl reads the published runs, by family in order, the colocated one first.
func readVerl() (map[string][]verlRow, published, error) {
	table, err := readTable("verl_published")
	if err != nil {
		return nil, published{}, err
	}
	rows := map[string][]verlRow{}
	for i := range table.rows {
		var r verlRow
		for _, f := range verlFamilies {
			if f.name == table.text(i, "family") {
				r.family = f
			}
		}
		if r.family.name == "" {
			return nil, table, fmt.Errorf("reproduce: cases/%s.csv: row %d is of the unknown family %q", table.name, i+1, table.text(i, "family"))
		}
		v, err := table.values(i, "gpus", "rollout_gpus", "train_gpus", "step_s", "gen_s", "update_actor_s")
		if err != nil {
			return nil, table, err
		}
		r.mode, r.partial = table.text(i, "mode"), table.text(i, "partial") == "true"
		r.gpus, r.rollout, r.train = int(v[0]), int(v[1]), int(v[2])
		r.stepS, r.genS, r.updateS = v[3], v[4], v[5]
		r.logProbS, r.refS = table.number(i, "old_log_prob_s"), table.number(i, "ref_s")
		if r.mode != "colocate_sync" {
			w, err := table.values(i, "staleness_threshold", "require_batches", "trigger_parameter_sync_step")
			if err != nil {
				return nil, table, err
			}
			r.threshold, r.require, r.trigger = w[0], int(w[1]), int(w[2])
		}
		for k, column := range []string{"hours_100_steps", "hours_200_steps", "hours_300_steps", "hours_400_steps"} {
			r.hours[k] = table.number(i, column)
		}
		rows[r.family.name] = append(rows[r.family.name], r)
	}
	for name, list := range rows {
		if !strings.HasPrefix(list[0].mode, "colocate") {
			return nil, table, fmt.Errorf("reproduce: cases/%s.csv: the first row of %s is not colocated", table.name, name)
		}
	}
	return rows, table, nil
}
