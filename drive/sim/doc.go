// Package sim drives the production loop with a virtual clock. Modelled engines,
// environments, a modelled trainer and weight sync replace real ones, and nothing
// else differs from a live run.
//
// A closed form and a simulation mean the same by these conventions. Staleness is
// counted with the trainer's version when a step starts. Engines serve a new
// version from the step's end plus the sync. The batch leaves the queue at the
// step's start. A rollout holds its slot through generation and environment.
//
// # Interruptions
//
// An interrupted rollout keeps its tokens, the versions that made them and the
// rest of its work. Resumed, it goes on after Config.PrefillNSPerToken for every
// token it has. Generation is fluid between tokens, so that a restart that costs
// nothing is the same as none. Under Lockstep an interruption waits for the
// running decode step to end, and rollouts that end with that step end.
//
// A rollout in its environment is interrupted at once: it needs no engine, and a
// sync must not wait for a tool. Its environment goes on meanwhile, and the
// rollout holds a slot again, without a prefill, until it is over.
//
// The same config and seed give the same events, byte for byte. Every draw is a
// function of (seed, group, sample, attempt), and events of one instant are
// delivered in the loop's order.
package sim
