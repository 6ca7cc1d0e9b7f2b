// Package embedded trains the small transformer inside this process: GRPO on a batch in one optimizer
// step or several minibatches. It has per-token importance ratios against the rollout's own log-probs
// under any of grpo's corrections, and Adam. It implements port.Trainer and publishes every version,
// weights and optimizer state together, through port.Weights.
//
// The result of a step is a function of the batch, the weights, the seed and the number of threads
// alone. Threads get whole groups in balance, and their gradients are summed in a fixed order.
package embedded
