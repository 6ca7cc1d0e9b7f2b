// Package timeline draws the events of a run as the spans that trace viewers
// read: Perfetto (ui.perfetto.dev) and Chrome (chrome://tracing), which share the
// JSON object format of trace events.
//
// There is a track for every slot of every engine, which its rollouts fill; one
// for each engine's weights (load, switch); one for the train steps and one for
// the weight syncs of the fleet; counters for the queue, the versions, the
// rollouts in flight and the staleness of every batch; and a mark for every group
// that ends untrained. Arrows lead from a trained rollout to the step that consumed
// it, from there to the sync of the version that was made, and on to every engine's
// load and switch. Spans have the colour of their version where the viewer takes one.
//
// What must hold: spans of one track never overlap but nest; their lengths within the
// drawn window add up to the times that the metrics report of it (see [Totals]); and
// viewers bind an arrow to the very spans between which it was drawn.
//
// It draws what any driver observed: the simulator's virtual time, or the events
// of a recorded run taken through the loop again.
package timeline
