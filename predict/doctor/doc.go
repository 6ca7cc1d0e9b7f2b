// Package doctor says what is wrong with a config before it costs anything: a
// budget that can never act, a rule that throws most of the work away, a
// setting under which the run stands still.
//
// Every finding says how it is known. Arithmetic follows from the loop's rules
// alone, for any workload. A closed form is package theory's, on the modelled
// workload. A simulation is a short one with the production loop, of a few
// thousand groups, and the finding says how many. What is known in none of
// these ways is not claimed.
//
// The package decides nothing and changes nothing: the same case gives the same
// findings.
package doctor
