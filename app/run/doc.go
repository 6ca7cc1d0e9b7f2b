// Package run trains in one process: it opens a run directory, predicts the run by a short probe, and gives the live
// runtime its options. A run that was interrupted goes on from its directory.
package run
