// Package link runs a cell in a process of its own, and has a writer hear such cells.
//
// A cell obeys the log, and the log acknowledges its words. So a link owes little: a word may be lost, doubled or late,
// and the cell says it again until the log shows it. Refusals alone are answered.
package link
