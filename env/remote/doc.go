// Package remote is an environment whose rollouts are played by workers in other
// processes: they claim a rollout, sample with it, and finish it with a reward. It
// implements live.Environment towards the runtime.
//
// Tokens, log-probs and versions stay here: a worker gets what was sampled, and what is
// trained on is what was recorded, not what a worker sends back. A rollout is
// acknowledged once its payload and its event are durable.
package remote
