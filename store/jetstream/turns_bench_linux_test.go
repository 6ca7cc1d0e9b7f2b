package jetstream

import (
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// spent is the processor time of this process so far, in microseconds, the NATS server in it included.
func spent(b *testing.B) float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return float64(u.Utime.Sec+u.Stime.Sec)*1e6 + float64(u.Utime.Usec+u.Stime.Usec)
}

// BenchmarkKeepTurn keeps turns of 1,000 tokens as 64 rollouts at once do, of the control plane's own and in a cell.
func BenchmarkKeepTurn(b *testing.B) {
	data := make([]byte, 25_000) // as text of their numbers
	for i := range data {
		data[i] = '0' + byte(i*7%10)
	}
	for _, kept := range []struct {
		by   string
		open func(b *testing.B) port.Turns
	}{
		{"plane", func(b *testing.B) port.Turns {
			s := open(b, Options{Dir: filepath.Join(b.TempDir(), "nats")})
			begin(b, s)
			return s
		}},
		{"cell", func(b *testing.B) port.Turns {
			o := Options{URL: startServer(b, nil), Run: "test", CellTurns: true}
			begin(b, open(b, o))
			return openCell(b, o, "b")
		}},
	} {
		b.Run(kept.by, func(b *testing.B) {
			turns := kept.open(b)
			var wg sync.WaitGroup
			next := make(chan int)
			for range 64 {
				wg.Go(func() {
					for g := range next {
						if err := turns.KeepTurn(port.RolloutID{Group: loop.GroupID(g + 1), Attempt: 1}, 0, data); err != nil {
							b.Error(err)
						}
					}
				})
			}
			before := spent(b)
			b.ResetTimer()
			for g := range b.N {
				next <- g
			}
			close(next)
			wg.Wait()
			b.ReportMetric((spent(b)-before)/float64(b.N), "cpu-us/op")
		})
	}
}
