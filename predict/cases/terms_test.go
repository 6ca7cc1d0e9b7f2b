package cases

import "testing"

// What decides a row's time moves it: the loss of a supervised trainer is cheaper, layers that several GPUs split
// exchange more, and weights that become fp8 on the way cost a conversion of every tensor.
func TestTermsOfTrainersAndSyncs(t *testing.T) {
	train := fields{"schedule": "trainer alone", "rollout_gpus": "", "train_dtype": "bf16, FSDP2"}
	sync := fields{"schedule": "weight sync alone", "train_gpus": "16", "rollout_tp": "4", "model": "qwen3-30b-a3b", "sync": "NCCL reshard", "sequences": ""}
	with := func(base fields, change fields) fields {
		out := fields{}
		for _, from := range []fields{base, change} {
			for k, v := range from {
				out[k] = v
			}
		}
		return out
	}
	step := func(change fields) float64 {
		a := answers(t, read(t, example("a", change)), Shipped(), Options{})[0]
		if a.Step == nil {
			t.Fatalf("%v: %s", change, a.Reason)
		}
		return a.Step.Predicted
	}
	for name, pair := range map[string][2]fields{
		"supervised":     {with(train, fields{"note": "SFT, full"}), train},
		"split layers":   {with(train, fields{"train_dtype": "bf16", "train_tp": "1"}), with(train, fields{"train_dtype": "bf16", "train_tp": "8"})},
		"fp8 on the way": {sync, with(sync, fields{"rollout_dtype": "fp8"})},
		"long sequences": {with(train, fields{"mean_response_tokens": "4096", "cap_tokens": "8192", "sequences": "256"}), with(train, fields{"mean_response_tokens": "16384", "cap_tokens": "16384", "sequences": "64"})},
	} {
		if less, more := step(pair[0]), step(pair[1]); less >= more {
			t.Errorf("%s: %g s, and %g s of the other, which is more work", name, less, more)
		}
	}
}
