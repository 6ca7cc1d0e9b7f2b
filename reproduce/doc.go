// Package reproduce puts published measurements beside what the closed forms and
// the simulator say from the same inputs. Nothing is fitted to a printed value
// it is compared with; a row that lacks an input says so.
package reproduce
