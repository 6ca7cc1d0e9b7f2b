// Package replay takes a recorded run through the loop again.
//
// [Verify] checks that the loop decides for the recorded events what the trace
// says was executed, action for action, or shows the first difference. [Load]
// rebuilds the loop and the metrics of an interrupted run, so that it can go on.
// [Measure] extracts the times that the run's engines, environments and trainer
// took. [Recording.Config] turns them into a simulation of the same run, under its
// own settings or others.
//
// A live run appends its events first and the actions that followed from them
// later, as they were executed. The trace is runs of events, each followed by the
// actions of those events in order. Only where a process died may actions be
// missing; the event "recovered" comes next then.
package replay
