package embedded

import (
	"math/rand/v2"
	"testing"

	"github.com/headway-rl/headway/store/weights"
)

// BenchmarkStep is a train step on 64 rollouts of 4 tokens, without what publishes it.
func BenchmarkStep(b *testing.B) {
	store, err := weights.Open(b.TempDir(), weights.Options{})
	if err != nil {
		b.Fatal(err)
	}
	o := shape()
	o.Weights = store
	tr, err := New(o)
	if err != nil {
		b.Fatal(err)
	}
	if err := tr.Initialize(b.Context()); err != nil {
		b.Fatal(err)
	}
	lot := batch(b, tr, rand.New(rand.NewPCG(1, 2)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tr.step(b.Context(), lot); err != nil {
			b.Fatal(err)
		}
	}
}
