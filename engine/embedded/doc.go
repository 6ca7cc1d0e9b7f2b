// Package embedded generates rollouts inside this process. One goroutine decodes all slots together
// over a key-value cache, a token a slot and step, and takes in new prompts in the same step. It
// implements port.Engine, port.Timed and port.Paced.
//
// Weights change between two steps, of running generations too. Every token records the version
// that sampled it, and its log-prob is the one it was sampled with. Keys and values made by earlier
// weights are kept.
//
// A response ends at the end of sequence or at one of the request's stop ids. Tokens are drawn by the
// policy as it is: any other sampling, and texts that end a response, are refused.
//
// The tokens of a rollout are a function of the run's seed, the rollout's name, its position and
// the weights. They never depend on the rollouts that share its steps.
package embedded
