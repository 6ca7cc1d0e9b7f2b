// Package track folds the events and actions of a run into the place of every attempt, and its time there.
//
// A [Run] holds the attempts in slots, the interrupted ones, the engines with their weight syncs, and the batch at the
// trainer. [Groups] holds figures of live groups. Metrics, attribution, bias, timeline, dashboard and replay's measurer fold
// by it, and add their own figures. Each has a run of its own, because it is used alone, saved alone, and
// fed at its own pace; see docs/decisions/0030-one-fold-an-observer-each.md.
//
// A run takes a step of the loop in three parts: [Run.Event], [Run.Action] for every action in order, and [Run.Done].
// It allocates nothing in the steady state.
package track
