// Package live runs the loop on the wall clock.
//
// One goroutine owns the loop. Engines, environments, the trainer and the store
// are ports; each effect runs in its own goroutine and finishes by one event in
// the inbox, which is large enough that posting never blocks: a slot has at most
// one rollout outstanding, an engine one weight load, the trainer one step.
//
// A rollout may be interrupted, and resumed in another slot, of another engine. Its
// environment notices nothing: it is blocked in its sampler, or in a tool while the
// rollout has no slot. What an attempt says goes through the slot it has at that
// moment; without one, it waits.
//
// Order, per group of events: payloads are durable before their event exists;
// the events are appended to the log; only then are the actions that follow from
// them executed, and what was executed is appended with the next group.
package live
