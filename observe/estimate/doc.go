// Package estimate says how far a mean over a simulation's steps can be trusted. It finds the
// beginning to leave out ([Warmup]) and the interval around the mean ([OfSeries], [OfRatio],
// [OfSeeds]). It judges whether the mean has settled at all ([SettlingOf]).
//
// The values of a series are of successive train steps, so they are correlated:
// the textbook interval of independent values would be too narrow. Everything here
// is a function of the numbers given, without chance or clock.
package estimate
