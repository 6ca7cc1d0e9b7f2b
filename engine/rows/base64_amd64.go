package rows

import "golang.org/x/sys/cpu"

// vectorized: this processor has what decodeBlocks is written in.
var vectorized = cpu.X86.HasAVX2

// decodeBlocks decodes blocks of 32 letters into 24 bytes each, and writes eight bytes beyond. It stops before a block
// that has something else in it, and returns how many it has decoded.
//
//go:noescape
func decodeBlocks(to, text *byte, blocks int) int
