//go:build unix && !linux

package llamacpp

import "syscall"

// dieWithParent has no counterpart here: a server outlives a headway that is killed.
func dieWithParent(*syscall.SysProcAttr) {}
