// Package metrics folds events and actions of the loop into series and summaries. The simulator,
// the live runtime and the replayer use this one implementation, so that their reports mean the
// same.
//
// Words and units are loop.md's: staleness counts policy versions, a group is
// weighted once, time is nanoseconds since the run started.
package metrics
