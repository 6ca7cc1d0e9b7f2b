package transformer

import (
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"
)

// gemm computes C = A·B, or C += A·B with accumulate, for A of m×k, B of k×n
// and C of m×n. Element (i, p) of A is a[i*rs+p*cs], so that (rs, cs) =
// (lda, 1) reads A and (1, lda) reads its transpose; one of the two must be 1.
// B and C are row-major with leading dimensions ldb and ldc. C must overlap
// neither A nor B.
//
// It runs on the caller's goroutine alone and allocates nothing: the number of
// cores a pass uses is the trainer's choice, not the matrix product's.
func gemm(m, n, k int, a []float32, rs, cs int, b []float32, ldb int, c []float32, ldc int, accumulate bool) {
	if m == 0 || n == 0 {
		return
	}
	if k == 0 {
		panic("transformer: matrix product over no elements")
	}
	// The kernels do not check bounds: touch the far corners here.
	_ = a[(m-1)*rs+(k-1)*cs]
	_ = b[(k-1)*ldb+n-1]
	_ = c[(m-1)*ldc+n-1]
	if vectorized {
		gemmVectorized(m, n, k, a, rs, cs, b, ldb, c, ldc, accumulate)
		return
	}
	gemmPortable(m, n, k, a, rs, cs, b, ldb, c, ldc, accumulate)
}

// portableBlock is the largest tile handed to gonum at once, in rows and in
// columns: from four blocks of 64×64 on it starts goroutines of its own.
const portableBlock = 64

// gemmPortable is gemm on gonum's BLAS, in tiles that gonum computes serially.
func gemmPortable(m, n, k int, a []float32, rs, cs int, b []float32, ldb int, c []float32, ldc int, accumulate bool) {
	trans, lda := blas.NoTrans, rs
	if cs != 1 {
		trans, lda = blas.Trans, cs
	}
	var beta float32
	if accumulate {
		beta = 1
	}
	for i := 0; i < m; i += portableBlock {
		rows := min(portableBlock, m-i)
		for j := 0; j < n; j += portableBlock {
			cols := min(portableBlock, n-j)
			gonum.Implementation{}.Sgemm(trans, blas.NoTrans, rows, cols, k,
				1, a[i*rs:], max(lda, 1), b[j:], ldb, beta, c[i*ldc+j:], ldc)
		}
	}
}

// transpose writes the rows×cols matrix src, row-major, into dst as cols×rows.
func transpose(dst, src []float32, rows, cols int) {
	for i := range rows {
		row := src[i*cols : (i+1)*cols]
		for j, v := range row {
			dst[j*rows+i] = v
		}
	}
}
