//go:build !linux && !darwin

package machine

// systemMemory is 0: it is not asked for here.
func systemMemory() int64 { return 0 }
