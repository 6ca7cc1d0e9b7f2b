package weights

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

const (
	// safetensorsSuffix ends the names of the files that are read as tensors.
	safetensorsSuffix = ".safetensors"
	// optimizerPrefix begins the names of the trainer's own files, which engines never load.
	optimizerPrefix = "optimizer."
	// nameBytesMax is the longest name of a file, as file systems have it.
	nameBytesMax = 255
)

// isTensors reports whether a file of that name holds tensors.
func isTensors(name string) bool { return strings.HasSuffix(name, safetensorsSuffix) }

// isOptimizer reports whether a file is the trainer's own.
func isOptimizer(name string) bool { return strings.HasPrefix(name, optimizerPrefix) }

// isModel reports whether engines serve the tensors of a file.
func isModel(name string) bool { return isTensors(name) && !isOptimizer(name) }

// checkName refuses what cannot be a file of a version: whatever could leave its
// directory, hide in it, or be taken for something else there.
func checkName(name string) error {
	switch {
	case name == "" || len(name) > nameBytesMax:
		return fmt.Errorf("the file name %.40q has %d bytes, want from 1 to %d", name, len(name), nameBytesMax)
	case !utf8.ValidString(name) || strings.ContainsAny(name, "/\\:\x00") || strings.ContainsFunc(name, isControl):
		return fmt.Errorf("the file name %q, want UTF-8 without separators, colons and control characters", name)
	case name[0] == '.':
		return fmt.Errorf("the file name %q, want none that begins with a dot", name)
	case name == ManifestName || name == derivedName || name == viewName:
		return fmt.Errorf("the file name %q, which the store needs itself: choose another", name)
	}
	return nil
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

// derivedName is the directory, in a version's, of what was made from its files.
const derivedName = "derived"
