// Package foreign reads other frameworks' logs of a run, in every file that they or their tracker leave. It translates
// all of them to one definition of staleness (loop's) and one set of names and units. It names each quantity that a log
// lacks, with how to get it, and marks inferred values. It judges nothing: package diagnosis does.
//
// A Source yields rows: a step, a time, and values by key. A Framework knows the keys of one framework and how its
// notions turn into ours. Files of any size are read as a stream, and the memory for them is bounded.
package foreign
