//go:build !unix

package machine

// Descriptors is how many files and connections this process may have open.
func Descriptors() int { return 16384 }
