//go:build amd64

package transformer

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// vectorized reports whether this processor runs the AVX2 and FMA kernels of
// gemm_amd64.s. A variable, so that tests can compare both roads.
var vectorized = cpu.X86.HasAVX2 && cpu.X86.HasFMA

//go:noescape
func kernel4x16(k int, a *float32, rs, cs int, b *float32, ldb int, c *float32, ldc int, accumulate int)

//go:noescape
func kernel1x16(k int, a *float32, rs, cs int, b *float32, ldb int, c *float32, ldc int, accumulate int)

//go:noescape
func kernel4x16masked(k int, a *float32, rs, cs int, b *float32, ldb int, c *float32, ldc int, accumulate int, mask *int32)

//go:noescape
func kernel1x16masked(k int, a *float32, rs, cs int, b *float32, ldb int, c *float32, ldc int, accumulate int, mask *int32)

// masks holds sixteen negative words followed by sixteen zeros: the mask for
// the first w columns of a tile starts at word 16-w.
var masks = func() (m [32]int32) {
	for i := range 16 {
		m[i] = -1
	}
	return m
}()

// rowBlock bounds the rows of A that are reused across the column tiles of B
// before moving on, so that they stay in the first-level cache.
const rowBlock = 64

// gemmVectorized is gemm on the AVX2 kernels. Bounds were checked by gemm.
func gemmVectorized(m, n, k int, a []float32, rs, cs int, b []float32, ldb int, c []float32, ldc int, accumulate bool) {
	acc := 0
	if accumulate {
		acc = 1
	}
	const f = int(unsafe.Sizeof(float32(0)))
	for low := 0; low < m; low += rowBlock {
		high := min(low+rowBlock, m)
		for j := 0; j < n; j += 16 {
			width := min(16, n-j)
			mask := &masks[16-width]
			bj := &b[j]
			i := low
			for ; i+4 <= high; i += 4 {
				if width == 16 {
					kernel4x16(k, &a[i*rs], rs*f, cs*f, bj, ldb*f, &c[i*ldc+j], ldc*f, acc)
				} else {
					kernel4x16masked(k, &a[i*rs], rs*f, cs*f, bj, ldb*f, &c[i*ldc+j], ldc*f, acc, mask)
				}
			}
			for ; i < high; i++ {
				if width == 16 {
					kernel1x16(k, &a[i*rs], rs*f, cs*f, bj, ldb*f, &c[i*ldc+j], ldc*f, acc)
				} else {
					kernel1x16masked(k, &a[i*rs], rs*f, cs*f, bj, ldb*f, &c[i*ldc+j], ldc*f, acc, mask)
				}
			}
		}
	}
}
