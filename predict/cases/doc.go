// Package cases answers a table of other people's runs, row by row. An answer is how long a step
// takes, its parts, how stale it trains, and how far it may be off.
//
// A row has a run's inputs and, in columns that begin with m_, its source's own measurements. A
// prediction reads no measurement. A calibrated one reads those of the rows that the caller names.
//
// A step is predicted by the closed forms of package schedule from the rooflines of package
// hardware. A figure that no data sheet has is a [Constant]: a guess from physics with a spread,
// which [Fit] narrows by measured rows. Their spreads make the interval of an answer.
package cases
