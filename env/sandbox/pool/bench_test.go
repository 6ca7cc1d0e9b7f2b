package pool

import (
	"context"
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/headway-rl/headway/env/sandbox"
)

// nothing is a driver whose boxes cost nothing, so that what is left is the pool.
type nothing struct{ sandbox.Driver }

type noBox struct {
	sandbox.Box
	id sandbox.ID
}

func (nothing) Name() string                                          { return "nothing" }
func (nothing) Check(context.Context) (b sandbox.Boundary, err error) { return b, nil }
func (nothing) List(context.Context, string) ([]sandbox.ID, error)    { return nil, nil }
func (nothing) Destroy(context.Context, sandbox.ID) error             { return nil }
func (nothing) Create(_ context.Context, id sandbox.ID, _ sandbox.Spec) (sandbox.Box, error) {
	return noBox{id: id}, nil
}
func (b noBox) ID() sandbox.ID                                            { return b.id }
func (b noBox) Reset(context.Context) error                               { return nil }
func (b noBox) Close(context.Context) error                               { return nil }
func (b noBox) Read(context.Context, string, int64) (_ []byte, err error) { return nil, fs.ErrNotExist }
func (b noBox) Run(context.Context, sandbox.Command) (sandbox.Result, error) {
	return sandbox.Result{}, nil
}

// The pool's own share of a lease: taken, used once, given back, with its lines in the file.
func BenchmarkLease(b *testing.B) {
	for _, c := range []struct {
		name string
		o    Options
	}{
		{"new", Options{}},
		{"reset", Options{WarmMin: 32, WarmMax: 64, Reuse: Reset, Uses: 1 << 30}},
		{"bounded", Options{Max: 8}},
	} {
		b.Run(c.name, func(b *testing.B) {
			o := c.o
			o.Driver, o.Owner, o.File = nothing{}, "bench", filepath.Join(b.TempDir(), "boxes.jsonl")
			p, err := Open(b.Context(), o)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			b.SetParallelism(16)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					l, err := p.Lease(b.Context(), "g12-s3-a1")
					if err == nil {
						_, err = l.Run(b.Context(), program)
					}
					if err != nil {
						b.Error(err)
						return
					}
					_ = l.Close(b.Context())
				}
			})
			if err := p.Close(b.Context()); err != nil {
				b.Error(err)
			}
		})
	}
}
