package plane

import (
	"context"
	"encoding/json"
	"sync"
)

// eventStream sends what happens to those who look. Whoever does not keep up is dropped: a
// viewer never holds up a run.
type eventStream struct {
	mu   sync.Mutex
	subs map[chan []byte]struct{}
}

// streamBacklog is how many messages a subscriber may be behind.
const streamBacklog = 64

// Subscribe implements api.Plane.
func (f *eventStream) Subscribe(ctx context.Context) <-chan []byte {
	c := make(chan []byte, streamBacklog)
	f.mu.Lock()
	if f.subs == nil {
		f.subs = make(map[chan []byte]struct{})
	}
	f.subs[c] = struct{}{}
	f.mu.Unlock()
	context.AfterFunc(ctx, func() { f.drop(c) })
	return c
}

func (f *eventStream) drop(c chan []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, there := f.subs[c]; there {
		delete(f.subs, c)
		close(c)
	}
}

// send encodes a message once, and not at all while nobody looks.
func (f *eventStream) send(message any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.subs) == 0 {
		return
	}
	text, err := json.Marshal(message)
	if err != nil {
		return
	}
	for c := range f.subs {
		select {
		case c <- text:
		default:
			delete(f.subs, c)
			close(c)
		}
	}
}
