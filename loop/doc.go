// Package loop is Headway's deciding code, one deterministic state machine. It says which rollouts
// to start, which ready groups to keep, drop or train on, and when which engine switches to which
// policy version.
//
// The simulator drives it with a virtual clock, the live runtime with the wall clock and the
// replayer with a recorded trace. [Loop.Step] takes an [Event] and returns the [Action] values that
// follow from it. The package reads no clock, starts no goroutine, does no I/O, draws no random
// number and never ranges over a map. In the steady state it does not allocate.
//
// Invariants, checked after every step (a violation panics with an
// [*InvariantError]):
//
//   - every rollout attempt is in exactly one state of the [Ledger], and ends once;
//   - the queue never holds more groups than its capacity;
//   - policy versions never fall: not the trainer's, not any engine's;
//   - pre-queue staleness + in-queue staleness = staleness, each at least 0.
//
// A completion names its subject and attempt. One that is late, duplicated or
// unknown is counted in [Status] and changes nothing else.
package loop
