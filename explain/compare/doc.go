// Package compare reads recorded runs: it puts them side by side, resimulates them under
// other settings, and follows one that still goes on. It judges nothing that a trace
// does not hold.
package compare
