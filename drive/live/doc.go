// Package live runs the loop on the wall clock.
//
// One goroutine owns the loop. Engines, environments, the trainer and the store
// are ports. Each effect runs in its own goroutine and finishes by one event in
// the inbox. The inbox is so large that posting never blocks. A slot has at most
// one rollout outstanding, an engine one weight load, the trainer one step.
//
// A rollout may be interrupted, and resumed in another slot, of another engine.
// Its environment notices nothing: it is blocked in its sampler, or in a tool
// while the rollout has no slot. Tokens and calls of an attempt go through the
// slot it has at that moment; without one, the attempt waits.
//
// Order, per group of events: payloads are durable before their event exists, and
// the events are then appended to the log. Only then are the actions that follow
// from them executed. The executed actions are appended with the next group.
package live
