// Package record holds what a run keeps and shows of itself beside its log. That is the lines of its train steps, readable
// samples, evaluations, figures for trackers of others, and its view in a browser.
//
// A run in one process and a control plane share it.
package record
