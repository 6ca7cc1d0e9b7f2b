package transformer

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

func randomSlice(rng *rand.Rand, n int) []float32 {
	s := make([]float32, n)
	for i := range s {
		s[i] = float32(rng.NormFloat64())
	}
	return s
}

// TestGemmAgreesWithDefinition compares both roads with a float64 triple loop,
// over shapes that reach every kernel: whole and partial tiles, either stride.
func TestGemmAgreesWithDefinition(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, m := range []int{1, 3, 4, 7, 65, 130} {
		for _, n := range []int{1, 5, 16, 29, 48, 70} {
			for _, k := range []int{1, 2, 16, 67} {
				for _, transposed := range []bool{false, true} {
					for _, accumulate := range []bool{false, true} {
						checkGemm(t, rng, m, n, k, transposed, accumulate)
					}
				}
			}
		}
	}
}

func checkGemm(t *testing.T, rng *rand.Rand, m, n, k int, transposed, accumulate bool) {
	t.Helper()
	const slack = 3
	rs, cs := k+slack, 1
	if transposed {
		rs, cs = 1, m+slack
	}
	ldb, ldc := n+slack, n+1
	a := randomSlice(rng, (m-1)*rs+(k-1)*cs+1)
	b := randomSlice(rng, (k-1)*ldb+n)
	before := randomSlice(rng, m*ldc)
	roads := map[string]func(m, n, k int, a []float32, rs, cs int, b []float32, ldb int, c []float32, ldc int, acc bool){
		"portable": gemmPortable,
	}
	if vectorized {
		roads["vectorized"] = gemmVectorized
	}
	for name, road := range roads {
		c := append([]float32(nil), before...)
		road(m, n, k, a, rs, cs, b, ldb, c, ldc, accumulate)
		for i := range m {
			for j := range ldc {
				want := float64(before[i*ldc+j])
				if j < n {
					if !accumulate {
						want = 0
					}
					for p := range k {
						want += float64(a[i*rs+p*cs]) * float64(b[p*ldb+j])
					}
				}
				if got := float64(c[i*ldc+j]); math.Abs(got-want) > 1e-4*(1+math.Abs(want)) {
					t.Fatalf("%s m=%d n=%d k=%d transposed=%v accumulate=%v: c[%d,%d] = %g, want %g",
						name, m, n, k, transposed, accumulate, i, j, got, want)
				}
			}
		}
	}
}

// TestGemmRowsStandAlone pins what makes sampling independent of the batch's
// composition: a row's product has the same bits alone as among others.
func TestGemmRowsStandAlone(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	const m, n, k = 11, 29, 64
	a, b := randomSlice(rng, m*k), randomSlice(rng, k*n)
	together := make([]float32, m*n)
	gemm(m, n, k, a, k, 1, b, n, together, n, false)
	alone := make([]float32, n)
	for i := range m {
		gemm(1, n, k, a[i*k:], k, 1, b, n, alone, n, false)
		for j := range n {
			if alone[j] != together[i*n+j] {
				t.Fatalf("row %d column %d: %g alone, %g among %d rows", i, j, alone[j], together[i*n+j], m)
			}
		}
	}
}

func BenchmarkGemm(b *testing.B) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, shape := range [][3]int{{640, 192, 64}, {640, 256, 64}, {640, 64, 256}, {16, 192, 64}, {12, 16, 16}} {
		m, n, k := shape[0], shape[1], shape[2]
		x, y := randomSlice(rng, m*k), randomSlice(rng, k*n)
		c := make([]float32, m*n)
		for name, road := range map[string]func(m, n, k int, a []float32, rs, cs int, b []float32, ldb int, c []float32, ldc int, acc bool){
			"portable": gemmPortable, "chosen": gemm,
		} {
			b.Run(fmt.Sprintf("%s/%dx%dx%d", name, m, n, k), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					road(m, n, k, x, k, 1, y, n, c, n, false)
				}
				b.ReportMetric(2*float64(m*n*k)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
		}
	}
}
