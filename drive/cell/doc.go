// Package cell executes the decisions of the loop. It plays rollouts on engines, keeps their payloads, and has engines
// load and serve versions of the weights.
//
// A [Cell] decides nothing. It follows the log ([Cell.Follow]), and starts, resumes, interrupts, loads and switches only
// by an action in it. It answers each with one [Event], and gives its events to one function. It holds what the log does not
// have: engines' clients, attempts with their contexts, and responses under way.
//
// A rollout may be interrupted, and resumed in another slot, of another engine.
// Its environment notices nothing: it is blocked in its sampler, or in a tool
// while the rollout has no slot. Tokens and calls of an attempt go through the
// slot it has at that moment; without one, the attempt waits.
//
// The payload of a rollout is durable before the event of its score exists. It is dropped by what the loop has counted,
// once that is in the log.
package cell
