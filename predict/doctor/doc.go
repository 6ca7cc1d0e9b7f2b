// Package doctor finds the faults of a config before it costs anything.
// Examples are a budget that can never act, a rule that throws most work away,
// and a setting under which the run stands still.
//
// Every finding says how it is known. Arithmetic follows from the loop's rules
// alone, for any workload. A closed form is package theory's, on the modelled
// workload. A simulation is a short one with the production loop, of a few
// thousand groups, and the finding says how many. The package claims nothing that
// is known in none of these ways.
//
// The package decides nothing and changes nothing: the same case gives the same
// findings.
package doctor
