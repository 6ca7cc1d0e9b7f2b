package runsc_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/sandbox/runsc"
)

// BenchmarkStart40 makes 40 boxes at once, which stay open together, and says how long one took
// from Create to the answer of its first command.
func BenchmarkStart40(b *testing.B) { benchmarkStart(b, 40) }

// BenchmarkStart makes one box after the other.
func BenchmarkStart(b *testing.B) { benchmarkStart(b, 1) }

func benchmarkStart(b *testing.B, atOnce int) {
	driver, err := runsc.New(runsc.Options{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := driver.Check(b.Context()); err != nil {
		b.Skip(err)
	}
	var took []time.Duration
	var mu sync.Mutex
	made, before := 0, used(b)
	for b.Loop() {
		var starters sync.WaitGroup
		boxes := make([]sandbox.Box, atOnce)
		for i := range atOnce {
			id := sandbox.ID(fmt.Sprintf("bench.%d", made))
			made++
			starters.Go(func() {
				began := time.Now()
				box, err := driver.Create(b.Context(), id, sandbox.Spec{})
				if err != nil {
					b.Error(err)
					return
				}
				boxes[i] = box
				if _, err := box.Run(b.Context(), sandbox.Command{Argv: []string{"/bin/true"}}); err != nil {
					b.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				took = append(took, time.Since(began))
			})
		}
		starters.Wait()
		for _, box := range boxes {
			if box != nil {
				starters.Go(func() { _ = box.Close(context.Background()) })
			}
		}
		starters.Wait()
	}
	if len(took) == 0 {
		return
	}
	slices.Sort(took)
	b.ReportMetric(float64((used(b)-before).Milliseconds())/float64(made), "cpu-ms/box")
	b.ReportMetric(float64(took[len(took)/2].Milliseconds()), "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Milliseconds()), "p99-ms")
}

// used is the processor time of all processes of boxes that have ended.
func used(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
