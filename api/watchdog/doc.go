// Package watchdog says what a control plane waits for. It judges a view of the run (who
// was last heard of when, what the queue holds, what the loop waits for) and names, in
// the order of likelihood, what is missing while nothing makes progress. It has no clock
// of its own and starts nothing.
package watchdog
