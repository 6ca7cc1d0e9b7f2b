package scorer

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/headway-rl/headway/engine/upstream"
)

// member is a server of a lane, with what there is of it.
type member struct {
	Server
	stats ServerStats
	// failing counts its failures since it answered last.
	failing int
}

// lane has the servers of one channel, and those that wait for one. Who came first is served first.
type lane struct {
	channel string
	mu      sync.Mutex
	members []*member
	waiting []*waiter
	stats   LaneStats
}

// waiter waits for a free server that is none of those it has tried. Given is closed once it has one.
type waiter struct {
	tried []*member
	got   *member
	given chan struct{}
}

func (l *lane) add(s Server) {
	m := &member{Server: s}
	m.stats.Name, m.stats.URL, m.stats.Slots = s.Name, s.Home.URL(), s.Slots
	l.members = append(l.members, m)
}

// free returns the best of the servers that have a free slot and were not tried, nil for none. A server that has failed
// since it answered last is ill. It comes behind those that are well, and has one call at a time while there is one: a
// server that hangs would else take a timeout of every rollout that finds the others busy.
func (l *lane) free(tried []*member) (best *member) {
	well := slices.ContainsFunc(l.members, func(m *member) bool { return m.failing == 0 })
	for _, m := range l.members {
		if m.stats.Running >= m.Slots || slices.Contains(tried, m) || well && m.failing > 0 && m.stats.Running > 0 {
			continue
		}
		if best == nil || m.failing < best.failing ||
			m.failing == best.failing && m.stats.Running*best.Slots < best.stats.Running*m.Slots {
			best = m
		}
	}
	return best
}

// acquire waits for a slot of a server that is none of those tried, which are never all.
func (l *lane) acquire(ctx context.Context, tried []*member) (*member, error) {
	l.mu.Lock()
	if m := l.free(tried); m != nil {
		m.stats.Running++
		l.mu.Unlock()
		return m, nil
	}
	w := &waiter{tried: tried, given: make(chan struct{})}
	l.waiting = append(l.waiting, w)
	l.mu.Unlock()
	began := time.Now()
	select {
	case <-w.given:
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats.WaitedS += time.Since(began).Seconds()
	if w.got != nil && ctx.Err() == nil {
		return w.got, nil
	}
	if w.got != nil {
		l.leave(w.got)
	}
	l.waiting = slices.DeleteFunc(l.waiting, func(o *waiter) bool { return o == w })
	return nil, context.Cause(ctx)
}

// release gives a slot back after a call that took so long, and counts it. A call that was given up counts for nothing.
func (l *lane) release(m *member, took time.Duration, err error, givenUp bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		m.failing = 0
		m.stats.Calls++
		m.stats.Seconds += took.Seconds()
	case !givenUp:
		m.failing++
		m.stats.Failures++
		m.stats.Seconds += took.Seconds()
		m.stats.LastError = upstream.Said(err.Error())
	}
	l.leave(m)
}

// leave gives a slot back, and those that are free to those that wait. l.mu must be held.
func (l *lane) leave(m *member) {
	m.stats.Running--
	l.waiting = slices.DeleteFunc(l.waiting, func(w *waiter) bool {
		if w.got = l.free(w.tried); w.got == nil {
			return false
		}
		w.got.stats.Running++
		close(w.given)
		return true
	})
}

// LaneStats is what there is of a channel since the process began.
type LaneStats struct {
	// Channel is Teacher or Reference. Waiting is how many sequences wait for a slot just now, WaitedS how long all have
	// waited, in seconds.
	Channel string
	Waiting int
	WaitedS float64
	Servers []ServerStats
}

// ServerStats is what there is of a server.
type ServerStats struct {
	Name, URL string
	Slots     int
	// Running calls are under way, Calls were answered, Failures were not or wrongly. Seconds is what these took.
	Running         int
	Calls, Failures int64
	Seconds         float64
	// LastError is why the newest failure was one, empty for none.
	LastError string
}

// Stats returns what there is of every channel.
func (p *Pool) Stats() []LaneStats {
	out := make([]LaneStats, len(p.lanes))
	for i, l := range p.lanes {
		l.mu.Lock()
		out[i] = l.stats
		out[i].Channel, out[i].Waiting = l.channel, len(l.waiting)
		for _, m := range l.members {
			out[i].Servers = append(out[i].Servers, m.stats)
		}
		l.mu.Unlock()
	}
	return out
}
