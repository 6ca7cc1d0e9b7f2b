// Package estimate says what a mean over a simulation's steps is worth: how much
// of its beginning to leave out, how wide the interval around it is, and whether
// it has settled at all.
package estimate
