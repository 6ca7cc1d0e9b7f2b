package sandboxtest

import "github.com/headway-rl/headway/sandbox"

// Row is what became of one attack.
type Row struct {
	// Attack by name, and what it tries in words.
	Attack, Tries string
	// Outcome is Contained, Escaped or NotTried.
	Outcome string
	// How it was held, or what got out, or why it was not tried.
	How string
}

// Outcomes of a row.
const (
	Contained = "contained"
	Escaped   = "escaped"
	NotTried  = "not tried"
)

// Report is what the isolation suite found of a driver on one machine.
type Report struct {
	Driver   string
	Boundary sandbox.Boundary
	// Versions of the driver's own program and of the kernel, by name; Date it was found.
	Versions map[string]string
	Date     string
	Rows     []Row
}
