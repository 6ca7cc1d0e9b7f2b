// Package estimate says what a mean over a simulation's steps is worth: how much
// of its beginning to leave out ([Warmup]), how wide the interval around it is
// ([OfSeries], [OfRatio], [OfSeeds]), and whether it has settled at all ([Judge]).
//
// The values of a series are of successive train steps, so they are correlated:
// the textbook interval of independent values would be too narrow. Everything here
// is a function of the numbers given, without chance or clock.
package estimate
