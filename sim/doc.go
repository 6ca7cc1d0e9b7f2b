// Package sim drives the production loop with a virtual clock: modelled engines,
// environments, a modelled trainer and weight sync take the place of real ones,
// and nothing else differs from a live run.
//
// Conventions, so that a closed form and a simulation mean the same: staleness
// is counted with the trainer's version when a step starts; engines serve a new
// version from the step's end plus the sync; the batch leaves the queue at the
// step's start; a rollout holds its slot through generation and environment.
//
// The same config and seed give the same events, byte for byte: every draw is a
// function of (seed, group, sample, attempt), and events of one instant are
// delivered in the loop's order.
package sim
