//go:build !(linux && amd64)

package sandboxtest

import "testing"

// Isolation attacks a driver's boundary, where its attacks can be made.
func Isolation(t *testing.T, subject Subject, versions map[string]string) {
	t.Skip("the attacks are system calls of linux/amd64")
}

// Unbounded attacks a driver that claims no boundary, where its attacks can be made.
func Unbounded(t *testing.T, subject Subject, versions map[string]string) {
	t.Skip("the attacks are system calls of linux/amd64")
}
