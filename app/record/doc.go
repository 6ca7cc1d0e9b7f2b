// Package record holds what a run keeps and shows of itself beside its log. That is the lines of its train steps, readable
// samples, evaluations, figures for trackers of others, and its pages. A run in one process and a control plane share it.
//
// It also tells which command made a run directory, so that neither goes on with a run of the other.
package record
