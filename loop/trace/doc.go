// Package trace is the event log of a run: what happened, what was decided and
// what else a reader needs, one JSON object a line. For a live run it is the
// write-ahead log that recovery replays; the simulator writes the same format.
//
// There are three kinds of line: an event ("e"), an action as the driver executed
// it ("a", after the event it follows from), and a note ("note"). "n" is the
// sequence number of the event, "t" its time in nanoseconds since the run
// started. The first line is the note "header" with the rules of the loop and the
// resolved config; the last line of a complete trace is the note "end".
//
// Every line ends with a checksum of itself and all lines before it, so that a
// changed, missing or repeated line is found where it is.
package trace
