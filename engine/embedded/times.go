package embedded

import (
	"sync"
	"time"

	"github.com/headway-rl/headway/loop/trace"
)

// times counts decode steps by active slots and by whether the trainer was busy.
type times struct {
	mu    *sync.Mutex
	cells [2][]trace.ServiceCell // by busy, then by active slots
}

func newTimes(slots int) times {
	t := times{mu: &sync.Mutex{}}
	for busy := range t.cells {
		t.cells[busy] = make([]trace.ServiceCell, slots+1)
		for active := range t.cells[busy] {
			t.cells[busy][active] = trace.ServiceCell{Active: active, TrainerBusy: busy == 1}
		}
	}
	return t
}

func (t *times) add(active int, trainerBusy bool, d time.Duration) {
	busy := 0
	if trainerBusy {
		busy = 1
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	c := &t.cells[busy][active]
	c.Steps++
	c.NS += d.Nanoseconds()
}

// take returns the cells that were touched and starts over.
func (t *times) take() []trace.ServiceCell {
	t.mu.Lock()
	defer t.mu.Unlock()
	var taken []trace.ServiceCell
	for busy := range t.cells {
		for active := range t.cells[busy] {
			c := &t.cells[busy][active]
			if c.Steps > 0 {
				taken = append(taken, *c)
				c.Steps, c.NS = 0, 0
			}
		}
	}
	return taken
}
