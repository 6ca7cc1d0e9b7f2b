// Package timeline draws the events of a run as the spans that trace viewers
// read: Perfetto (ui.perfetto.dev) and Chrome (chrome://tracing), which share the
// JSON object format of trace events.
//
// There is a track for every slot of every engine, which its rollouts fill; one
// for each engine's weights (load, switch); one for the train steps and one for
// the weight syncs of the fleet; counters for the queue, the versions, the
// rollouts in flight and the staleness of every batch; and a mark for every group
// that ends untrained. What must hold: spans of one track never overlap but nest,
// and their lengths within the drawn window add up to the times that the metrics
// report of it (see [Totals]).
//
// It draws what any driver observed: the simulator's virtual time, or the events
// of a recorded run taken through the loop again.
package timeline
