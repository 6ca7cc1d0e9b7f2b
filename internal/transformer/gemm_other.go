//go:build !amd64

package transformer

// vectorized is false where no kernel is written for the processor.
var vectorized = false

// gemmVectorized is never reached: vectorized is false on this processor.
func gemmVectorized(m, n, k int, a []float32, rs, cs int, b []float32, ldb int, c []float32, ldc int, accumulate bool) {
	gemmPortable(m, n, k, a, rs, cs, b, ldb, c, ldc, accumulate)
}
