// Package diagnosis judges a run: what was measured beside what theory expects of it,
// where staleness and idle time come from, and what each change of a setting would buy
// and cost. It reads our traces and, through package foreign, others' logs; what
// rests on a formula and what on a resimulation is said with each figure.
package diagnosis
