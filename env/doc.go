// Package env holds the tasks a policy is trained on, and plays rollouts of
// them. A task makes problems and judges responses; see [ScoredTask] for how to add
// one. Prompts are split into training and held-out ones by a hash of the
// prompt, so that the two are disjoint by construction.
//
// Everything random is a function of the run's seed and the rollout's name
// (group, sample, attempt), never of the order in which rollouts are played.
package env
