package config

import (
	"fmt"
	"strings"
)

// planning checks the sections of a plan against one another. Whether a model
// or a GPU is known is package hardware's to say.
func (v *validator) planning() {
	v.hardware()
	v.shape()
	v.measured()
	v.search()
}

// hardware checks that the GPUs add up.
func (v *validator) hardware() {
	h := v.config.Hardware
	if h.GPUs == 0 {
		return
	}
	for _, side := range []struct {
		key  string
		gpus int
	}{{"rollout_gpus", h.RolloutGPUs}, {"train_gpus", h.TrainGPUs}, {"train_gpus_min", h.TrainGPUsMin}, {"gpus_per_replica", h.GPUsPerReplica}} {
		if side.gpus >= h.GPUs {
			v.fail("hardware."+side.key, side.gpus, fmt.Sprintf("leaves nothing of hardware.gpus (%d) to the other side", h.GPUs),
				fmt.Sprintf("1 to %d, or more GPUs", h.GPUs-1))
			return
		}
	}
	if h.RolloutGPUs+h.TrainGPUs > h.GPUs {
		v.fail("hardware.train_gpus", h.TrainGPUs, fmt.Sprintf("and hardware.rollout_gpus (%d) are more than hardware.gpus (%d)", h.RolloutGPUs, h.GPUs),
			fmt.Sprintf("at most %d", h.GPUs-h.RolloutGPUs))
	}
	if h.GPUsPerReplica > 0 && h.RolloutGPUs%h.GPUsPerReplica != 0 {
		v.fail("hardware.rollout_gpus", h.RolloutGPUs, fmt.Sprintf("is not a whole number of replicas of %d GPUs", h.GPUsPerReplica),
			multiplesNear(h.RolloutGPUs, h.GPUsPerReplica))
	}
}

// shape checks a model's parts against the whole.
func (v *validator) shape() {
	const path = "hardware.shape."
	s := v.config.Hardware.Shape
	switch {
	case s.Parameters > 0 && s.ActiveParameters > s.Parameters:
		v.fail(path+"active_parameters", s.ActiveParameters, "are more than there are", "at most "+number(s.Parameters))
	case s.Parameters > 0 && s.ExpertParameters > s.Parameters:
		v.fail(path+"expert_parameters", s.ExpertParameters, "are more than there are", "at most "+number(s.Parameters))
	case s.Experts > 0 && s.ExpertsPerToken > s.Experts:
		v.fail(path+"experts_per_token", s.ExpertsPerToken, "is more than there are", fmt.Sprintf("at most %d", s.Experts))
	case s.KVBytesPerToken > 0 && (s.KVHeads > 0 || s.HeadDim > 0):
		v.fail(path+"kv_bytes_per_token", s.KVBytesPerToken, "says what kv_heads and head_dim say too", "one of both")
	}
}

// measured checks what was measured against itself.
func (v *validator) measured() {
	const path = "hardware."
	h := v.config.Hardware
	if h.RolloutTokensPerSPerGPU > 0 && len(v.config.Modelled.DecodeCurve) > 0 {
		v.fail(path+"rollout_tokens_per_s_per_gpu", h.RolloutTokensPerSPerGPU, "says what modelled.decode_curve says too", "one of both")
	}
	if h.RolloutTokensPerSPerGPU > 0 && h.SlotsPerGPU == 0 {
		v.fail(path+"rollout_tokens_per_s_per_gpu", h.RolloutTokensPerSPerGPU, "says nothing without the number of rollouts it was measured with",
			"give hardware.slots_per_gpu too")
	}
	if h.TrainTokensPerSPerGPU > 0 && v.config.given(path+"mfu") {
		v.fail(path+"mfu", h.MFU, fmt.Sprintf("says what train_tokens_per_s_per_gpu (%s) says too", number(h.TrainTokensPerSPerGPU)), "one of both")
	}
	v.curve()
}

// curve refuses slots that get faster with more of them at work, which no engine's do.
func (v *validator) curve() {
	points := v.config.Modelled.DecodeCurve
	for i := 1; i < len(points); i++ {
		before, at := points[i-1], points[i]
		if at.Active > before.Active && at.TokensPerS > 1.02*before.TokensPerS {
			v.fail(fmt.Sprintf("modelled.decode_curve.%d.tokens_per_s", i), at.TokensPerS,
				fmt.Sprintf("contradicts %s with %d slots: a slot is not faster with more beside it", number(before.TokensPerS), before.Active),
				"measure again, or leave out the point that is wrong")
		}
	}
}

// search checks the lists of what is to be tried.
func (v *validator) search() {
	c, s := v.config, v.config.Search
	if s.Prefer == "cost" && c.Prices.GPUHour == 0 {
		v.fail("prices.gpu_hour", c.Prices.GPUHour, "leaves search.prefer cost nothing to make small: GPUs that cost nothing are all as cheap",
			"the price of a GPU's hour, above 0; or prefer speed")
	}
	for i, batch := range s.Batch {
		if c.given("search.batch_min") && batch < s.BatchMin {
			v.fail(fmt.Sprintf("search.batch.%d", i), batch, fmt.Sprintf("is below search.batch_min (%d), the smallest useful batch", s.BatchMin),
				"a larger batch, or a smaller search.batch_min")
			continue
		}
		if batch%c.Rollout.GroupSize != 0 {
			v.fail(fmt.Sprintf("search.batch.%d", i), batch, fmt.Sprintf("is not a multiple of rollout.group_size (%d)", c.Rollout.GroupSize),
				multiplesNear(batch, c.Rollout.GroupSize))
		}
	}
	for i, gpus := range s.RolloutGPUs {
		if c.Hardware.GPUs > 0 && gpus >= c.Hardware.GPUs {
			v.fail(fmt.Sprintf("search.rollout_gpus.%d", i), gpus, fmt.Sprintf("leaves nothing of hardware.gpus (%d) to the trainer", c.Hardware.GPUs),
				fmt.Sprintf("1 to %d", c.Hardware.GPUs-1))
		}
	}
	if len(s.StalenessThreshold) > 0 && len(s.Policies) > 0 && !strings.Contains(strings.Join(s.Policies, " "), "threshold") {
		v.fail("search.staleness_threshold", "", "is of policy threshold, which search.policies does not try", "add threshold to search.policies")
	}
}
