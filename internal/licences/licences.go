// Package licences holds the licences of what others wrote in the program headway. That are the Go modules that it is
// linked from, Go's standard library, and the libraries of its pages.
//
// TestCurrent generates both files of it from the modules themselves, and refuses a licence that it does not know.
package licences

import (
	_ "embed"
	"strings"
)

//go:embed components.csv
var table string

//go:embed texts.txt
var texts string

// Kind says where a component comes from.
type Kind string

const (
	// Module is a Go module.
	Module Kind = "module"
	// Library is a package of npm in the dashboard's pages.
	Library Kind = "library"
	// Standard is Go's own library, whose version is that of the compiler.
	Standard Kind = "standard"
)

// Component is one part of the program that others wrote.
type Component struct {
	Kind    Kind   `json:"kind"`
	Name    string `json:"name"`              // as its registry spells it
	Version string `json:"version,omitempty"` // empty for Standard
	Licence string `json:"licence"`           // an SPDX expression
}

// columns of the table.
const columns = 4

// Components returns every component, in the table's order.
func Components() []Component {
	var all []Component
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.TrimSpace(line), ",")
		if len(cells) == columns && cells[0] != "kind" {
			all = append(all, Component{Kind(cells[0]), cells[1], cells[2], cells[3]})
		}
	}
	return all
}

// Texts returns the components' licences and notices in full. A text that several have stands there once.
func Texts() string { return texts }
