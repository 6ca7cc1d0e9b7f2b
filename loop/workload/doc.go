// Package workload describes the input of a run. It says how long responses are, how long
// environments take, which groups survive the filter and which rollouts are solved.
//
// Every model is compiled once ([LengthSpec.Build], [TimesSpec.Build], [NewAcceptance]) and then
// answers two kinds of question from the same numbers. Draws are for the simulator and for
// environments that really wait, exact moments for the closed forms of package theory. A prediction
// and a simulation of one config therefore never disagree about what a "mean" is.
//
// # Draws
//
// A draw is a pure function of (seed, stream, group, sample, attempt), never of the order of calls:
// see [Source]. Two schedules that start the same group at different moments still give it the same
// lengths. So runs under different settings are compared on the same work, and a replay needs no
// generator state. Draws take about 10 ns and never allocate.
//
// # Units
//
// Lengths are whole tokens, times are nanoseconds when drawn and seconds when
// configured (field names end in _s). The unit of a group index is one prompt.
package workload
