// Package attribution says where every version of staleness comes from, and what
// the trainer and the engines waited for.
//
// It observes the events of a run with the actions that followed from them, as package metrics
// does, whichever driver made them. Each version increment that a group lives through belongs to
// the phase in which it fell. The increments go from its stamp to the version that its train step
// starts from. The parts of a group add up to its staleness exactly.
package attribution
