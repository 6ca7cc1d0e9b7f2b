// Package diagnosis judges a run. It sets measured figures beside the expectation
// of theory, and splits staleness and idle time by origin. It says how much each
// change of a setting would buy and cost. It reads our traces and, through package
// foreign, others' logs. Each figure says whether it rests on a formula or on a
// resimulation.
package diagnosis
