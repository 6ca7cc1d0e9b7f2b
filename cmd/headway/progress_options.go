package main

// progressOptions say how progress is shown.
type progressOptions struct {
	// Plain asks for lines even on a terminal.
	Plain bool `help:"Progress in lines, even on a terminal."`
}
