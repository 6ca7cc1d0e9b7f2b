// Package track folds the events of a run, with the actions that followed from them, into who runs where and since
// when: attempts in slots, interrupted attempts, engines with their weight syncs, the batch at the trainer, and live
// groups.
//
// It is the only fold of its kind. Metrics, attributions, timelines and dashboards hold a [Run] each, because each is
// used alone, saved alone, and fed at a pace of its own. They add their own figures to what it says.
//
// A step of the loop is taken in three parts: [Run.Event], [Run.Action] for every action in order, and [Run.Done].
// Before a part, the run says how things stood; after it, how they stand. Nothing allocates in the steady state.
package track
