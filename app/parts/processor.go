package parts

import (
	"runtime"
	"sync"
	"time"

	"github.com/headway-rl/headway/api/protocol"
)

// processorEvery is the least time over which processor time is measured.
const processorEvery = 2 * time.Second

// processorMuch is the share of a process's processors from which on tokens wait for one.
const processorMuch = 0.9

// Processor measures how much of its processors a process takes. The zero value is ready.
type Processor struct {
	mu    sync.Mutex
	since time.Time // of the measurement under way, the zero time before the first look
	spent time.Duration
	share float64 // of the last whole measurement, 1 for one processor
}

// Bound is the processor time of the time between two looks, in milliseconds a second. The processor says how much was taken by
// now. There is no bound where it is nil, because the system does not tell.
func (p *Processor) Bound(now time.Time, processor func() time.Duration) []protocol.Bound {
	if processor == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	spent := processor()
	if passed := now.Sub(p.since); p.since.IsZero() || passed >= processorEvery {
		if !p.since.IsZero() {
			p.share = (spent - p.spent).Seconds() / passed.Seconds()
		}
		p.since, p.spent = now, spent
	}
	most := runtime.GOMAXPROCS(0)
	return []protocol.Bound{{Name: protocol.BoundProcessor, Held: int64(1000 * p.share), Max: int64(1000 * most), Binding: p.share >= processorMuch*float64(most)}}
}
