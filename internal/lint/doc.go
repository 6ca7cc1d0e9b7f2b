// Package lint holds the architecture as tests. They say which room may import which and why, which
// calls a room must not make, and the duties of every file to its readers. It has no code of its own;
// a failure names the file, the line, the rule and its reason.
package lint
