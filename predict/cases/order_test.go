package cases

import (
	"fmt"
	"testing"
)

// order is a change of a row, and how a figure of it must then be: no less, or no more.
type order struct {
	name   string
	change fields
	figure func(Parts) float64
	more   bool
}

func training(p Parts) float64   { return p.Training + p.LogProbs }
func generation(p Parts) float64 { return p.Generation }
func step(p Parts) float64       { return p.Step }

// Whatever the row, more work takes no less time, and more or faster machines no more of it.
func TestOrderOverRows(t *testing.T) {
	half := fields{"train_gpus": "16", "rollout_gpus": "16", "gpus": "32"}
	async := with(half, fields{"schedule": "asynchronous, separate GPUs, at most 1 rollout batch old"})
	for _, base := range []struct {
		name string
		row  fields
		is   []order
	}{
		{"shared", fields{"train_gpus": "16", "rollout_gpus": "16"}, []order{
			{"twice the GPUs", fields{"gpus": "32", "train_gpus": "32", "rollout_gpus": "32"}, step, false}}},
		{"apart", with(half, fields{"schedule": "synchronous, separate GPUs"}), nil},
		{"asynchronous", async, []order{{"two batches ahead", fields{"schedule": "asynchronous, separate GPUs, at most 2 rollout batches old"}, step, false}}},
		{"in flight", with(async, fields{"staleness_rule": "in_flight_weight_updates true"}), nil},
		{"one group", with(async, fields{"prompts": "1", "sequences": "16", "optimizer_steps": "1"}), nil},
		{"long", with(async, fields{"mean_response_tokens": "9000", "cap_tokens": "32768"}), nil},
		{"pipelined", with(half, fields{"model": "qwen3-32b", "schedule": "synchronous, separate GPUs", "train_tp": "4", "train_pp": "2", "rollout_tp": "4"}), nil},
		{"experts", with(half, fields{"model": "qwen3-30b-a3b", "schedule": "synchronous, separate GPUs", "train_ep": "8", "rollout_tp": "2"}), nil},
	} {
		list := append([]order{
			{"longer responses", fields{"mean_response_tokens": longer(base.row["mean_response_tokens"])}, step, true},
			{"longer prompts", fields{"mean_prompt_tokens": "900"}, step, true},
			{"a reference pass", fields{"reference_pass": "yes"}, training, true},
			{"activations again", fields{"recompute": "yes"}, training, true},
			{"twice the updates", fields{"optimizer_steps": "4"}, training, true},
			{"a faster GPU", fields{"gpu": "b200"}, step, false},
			{"weights of one byte", fields{"rollout_dtype": "fp8"}, generation, false},
		}, base.is...)
		if base.name != "shared" {
			list = append(list, order{"twice the trainer", fields{"train_gpus": "32", "gpus": "48"}, training, false},
				order{"twice the engines", fields{"rollout_gpus": "32", "gpus": "48"}, generation, false},
				order{"twice the trainer", fields{"train_gpus": "32", "gpus": "48"}, step, false},
				order{"twice the engines", fields{"rollout_gpus": "32", "gpus": "48"}, step, false})
		}
		rows := []fields{example("base", base.row)}
		for i, o := range list {
			rows = append(rows, example(fmt.Sprint(i), with(base.row, o.change)))
		}
		got := answers(t, read(t, rows...), Shipped(), Options{})
		for i, o := range list {
			if got[i+1].Parts == nil || got[0].Parts == nil {
				t.Fatalf("%s, %s: %s%s", base.name, o.name, got[0].Reason, got[i+1].Reason)
			}
			was, is := o.figure(*got[0].Parts), o.figure(*got[i+1].Parts)
			if o.more && is < was*(1-1e-9) || !o.more && is > was*(1+1e-9) {
				t.Errorf("%s, %s: %.4g s, the base %.4g s", base.name, o.name, is, was)
			}
		}
	}
}

// An asynchronous step is no longer than the same one's parts in turn, and no shorter than the longest of them.
func TestAsynchronousStepLiesBetween(t *testing.T) {
	for i, change := range []fields{nil, {"mean_response_tokens": "300"}, {"mean_response_tokens": "3000", "cap_tokens": "16384"}, {"rollout_gpus": "8", "gpus": "24"}, {"train_gpus": "8", "gpus": "24"}, {"optimizer_steps": "16"}} {
		row := with(fields{"gpus": "32", "train_gpus": "16", "rollout_gpus": "16"}, change)
		got := answers(t, read(t, example("turns", with(row, fields{"schedule": "synchronous, separate GPUs"})),
			example("async", with(row, fields{"schedule": "asynchronous, separate GPUs, at most 1 rollout batch old"}))), Shipped(), Options{})
		turns, async := got[0].Parts, got[1].Parts
		if async.Step > turns.Step*(1+1e-9) || async.Step < max(training(*async), generation(*async))*(1-1e-9) {
			t.Errorf("%d: asynchronous %+v, in turn %+v", i, *async, *turns)
		}
	}
}

// with is a row's fields with changes.
func with(row, change fields) fields {
	out := fields{}
	for k, v := range row {
		out[k] = v
	}
	for k, v := range change {
		out[k] = v
	}
	return out
}

// longer is a mean response that is longer than that of the row.
func longer(mean string) string {
	if mean == "" {
		return "1400"
	}
	return mean + ".9"
}
