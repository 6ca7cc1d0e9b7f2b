// Package study holds Headway's scripted experiments: questions of the spec that
// take many simulations or many runs to answer, asked the same way every time.
//
// The caller hands it the things to run. Simulations go through a [Simulator], which works on all
// cores and keeps finished ones. So a study that is broken off goes on where it was. Runs go through
// a function of the caller, which owns engines, trainer and clock. Here are only the questions, the
// arithmetic over seeds and the tables.
//
// Arms of one study see the same seeds, so that group n has the same lengths in all of them. So every
// ratio is taken seed by seed, and its interval is Student's over the seeds.
package study
