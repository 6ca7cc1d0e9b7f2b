// Package cell is a cell of a run in a process of its own. It has the engines of a document that name it, and the players of
// the rollouts on them. The control plane decides by the run's log, and the cell follows that.
package cell
