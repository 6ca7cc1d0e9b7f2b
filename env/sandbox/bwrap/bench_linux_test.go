package bwrap

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headway-rl/headway/env/sandbox"
)

func benchDriver(b *testing.B) *Driver {
	d, err := New(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	if _, err := d.Check(b.Context()); err != nil {
		b.Skip(err)
	}
	return d
}

// quantiles reports the median and the 99th percentile of durations, in milliseconds.
func quantiles(b *testing.B, name string, all []time.Duration) {
	slices.Sort(all)
	ms := func(q float64) float64 { return float64(all[int(q*float64(len(all)-1))].Microseconds()) / 1000 }
	b.ReportMetric(ms(0.5), name+"_p50_ms")
	b.ReportMetric(ms(0.99), name+"_p99_ms")
}

// BenchmarkCreate is a box from nothing to its first command's end, and its removal.
func BenchmarkCreate(b *testing.B) {
	d := benchDriver(b)
	var starts, ends []time.Duration
	for i := 0; b.Loop(); i++ {
		began := time.Now()
		box, err := d.Create(b.Context(), sandbox.ID(fmt.Sprintf("bench.%d", i)), sandbox.Spec{})
		if err != nil {
			b.Fatal(err)
		}
		starts = append(starts, time.Since(began))
		began = time.Now()
		if err := box.Close(b.Context()); err != nil {
			b.Fatal(err)
		}
		ends = append(ends, time.Since(began))
	}
	quantiles(b, "create", starts)
	quantiles(b, "close", ends)
}

// BenchmarkTrue is a command that does nothing in a box that is up.
func BenchmarkTrue(b *testing.B) {
	d := benchDriver(b)
	box, err := d.Create(b.Context(), "bench.true", sandbox.Spec{})
	if err != nil {
		b.Fatal(err)
	}
	defer box.Close(context.Background())
	var took []time.Duration
	b.ReportAllocs()
	for b.Loop() {
		began := time.Now()
		if r, err := box.Run(b.Context(), sandbox.Command{Argv: []string{"true"}}); err != nil || r.Exit != 0 {
			b.Fatal(r, err)
		}
		took = append(took, time.Since(began))
	}
	quantiles(b, "run", took)
}

// BenchmarkHundreds is 200 boxes that are there at once, eight starting at a time.
func BenchmarkHundreds(b *testing.B) {
	d := benchDriver(b)
	const boxes, starting = 200, 8
	var all []time.Duration
	for b.Loop() {
		var mu sync.Mutex
		var up []sandbox.Box
		var work sync.WaitGroup
		room := make(chan struct{}, starting)
		for i := range boxes {
			work.Go(func() {
				room <- struct{}{}
				defer func() { <-room }()
				began := time.Now()
				box, err := d.Create(b.Context(), sandbox.ID(fmt.Sprintf("bench.h%d", i)), sandbox.Spec{})
				if err != nil {
					b.Error(err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				all, up = append(all, time.Since(began)), append(up, box)
			})
		}
		work.Wait()
		for _, box := range up {
			work.Go(func() {
				if r, err := box.Run(b.Context(), sandbox.Command{Argv: []string{"true"}}); err != nil || r.Exit != 0 {
					b.Error(r, err)
				}
				if err := box.Close(b.Context()); err != nil {
					b.Error(err)
				}
			})
		}
		work.Wait()
	}
	quantiles(b, "create", all)
}
