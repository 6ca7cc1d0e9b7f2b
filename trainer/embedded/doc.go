// Package embedded trains the small transformer inside this process: one GRPO
// step a batch, per-token importance ratios against the rollout's own log-probs,
// clipping, and Adam. It implements live.Trainer and publishes every version,
// weights and optimizer state together, through live.Weights.
//
// The result of a step is a function of the batch, the weights and the number of
// threads alone: shards of the batch are summed in a fixed order.
package embedded
