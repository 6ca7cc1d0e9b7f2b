// Package timeline draws the events of a run as the spans that trace viewers read. Perfetto
// (ui.perfetto.dev) and Chrome (chrome://tracing) share the JSON object format of trace events.
//
// There is a track for every slot of every engine, which its rollouts fill, and one for each
// engine's weights (load, switch). There is one for the train steps and one for the weight syncs of
// the fleet. Counters show the queue, the versions, the rollouts in flight and the staleness of
// every batch. Every group that ends untrained has a mark. Arrows lead from a trained rollout to
// the step that consumed it, and from there to the sync of the version that was made. They lead on
// to every engine's load and switch. Spans have the colour of their version where the viewer takes
// one.
//
// Three rules must hold. Spans of one track never overlap but nest. Their lengths within the drawn
// window add up to the times that the metrics report of it (see [Totals]). Viewers bind an arrow to
// the very spans between which it was drawn.
//
// It draws what any driver observed: the simulator's virtual time, or the events
// of a recorded run taken through the loop again.
package timeline
