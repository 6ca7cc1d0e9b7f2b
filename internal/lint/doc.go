// Package lint holds the architecture as tests: which room may import which and
// why, which calls a room must not make, and what every file owes its readers.
// It has no code of its own; a failure names the file, the line, the rule and
// its reason.
package lint
