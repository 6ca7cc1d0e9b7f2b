// Package foreign reads what other frameworks log of a run, in whatever file they or their
// tracker leave it, and says the same of all of them: one definition of staleness (loop's), one
// set of names and units. What a log lacks is named, with how to get it; what was inferred is
// marked so. It judges nothing: package diagnosis does.
//
// A Source yields rows: a step, a time, and values by key. A Framework knows the keys of
// one framework and how its notions turn into ours. Files of any size are read as a
// stream; what is kept of them is bounded.
package foreign
