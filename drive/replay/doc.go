// Package replay takes a recorded run through the loop again.
//
// [Verify] checks that the loop decides for the recorded events what the trace
// says was executed, action for action, or shows the first difference. [Load]
// rebuilds the loop and the metrics of an interrupted run, so that it can go on.
// [Measure] extracts what the run's engines, environments and trainer took, and
// [Recording.Config] turns that into a simulation of the same run, under its own
// settings or others.
//
// A live run appends its events first and the actions that followed from them
// later, as they were executed: the trace is runs of events, each followed by
// the actions of those events in order. Only where a process died may actions
// be missing, and what comes next then is the event "recovered".
package replay
