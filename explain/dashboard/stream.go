package dashboard

import (
	"cmp"
	"net/http"
	"sync"
	"time"
)

// Times of the stream: the least and the most between two summaries, and what is waited for a reader that takes nothing.
const (
	streamEvery     = 250 * time.Millisecond
	streamSeldom    = 2 * time.Second
	streamPatience  = 30 * time.Second
	streamHeartbeat = 15 * time.Second
)

// streamStill is the most between two summaries of a run that goes on, of which there may be nothing new but the time
// and what it waits for.
const streamStill = 2 * time.Second

// streamFew is how many may follow before each of them is told less often: the run that they watch needs the
// processor more than they do.
const streamFew = 64

// paceOf is the least time between two summaries for each of so many followers.
func paceOf(followers int64) time.Duration {
	return min(streamEvery*time.Duration(max(followers/streamFew, 1)), streamSeldom)
}

// latest is the newest summary, encoded once for all who follow.
type latest struct {
	mu   sync.Mutex
	body []byte
	at   time.Time
	// told is how often the model had told of something new by then.
	told int64
	// steps are the points that followed a step, as of that moment, for those who have been sent so far.
	steps map[int64]points
}

// points are the newest of the series, encoded, and the last step of them.
type points struct {
	body []byte
	last int64
}

// streamPoints is the most points that are sent at once: those who missed more have them in fewer.
const streamPoints = 500

// serveStream sends the newest state whenever there is a new one. A reader that is slow is sent the newest when
// it reads again: nothing is kept for it.
func (m *Model) serveStream(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return // nothing is ever written to its client, so that it would not be noticed to have left
	}
	out := eventWriter{w: w, control: http.NewResponseController(w)}
	m.followers.Add(1)
	defer m.followers.Add(-1)
	sent := m.lastStep() // what came before is asked for by GET series
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		changed, still := m.Changed(), m.still()
		body, old, err := m.newest()
		if err != nil || !out.event("summary", body) {
			return
		}
		steps, err := m.newestSteps(sent)
		if err != nil || steps.body != nil && !out.event("step", steps.body) {
			return
		}
		sent = steps.last
		if old {
			changed = closedChannel // there is something newer, to be sent after the pause
		}
		if !wait(r, &out, changed, pause, paceOf(m.followers.Load()), still) {
			return
		}
	}
}

// still is how long nothing may be sent of a run: forever, 0, unless it goes on.
func (m *Model) still() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.opt.Status == nil || m.ended {
		return 0
	}
	return streamStill
}

// wait returns when there is something new, at the earliest after the pause between two summaries. It returns after the
// time still, too, unless that is 0. It is false when the reader has left.
func wait(r *http.Request, out *eventWriter, changed <-chan struct{}, pause *time.Timer, pace, still time.Duration) bool {
	pause.Reset(pace)
	select {
	case <-pause.C:
	case <-r.Context().Done():
		return false
	}
	for {
		pause.Reset(cmp.Or(still, streamHeartbeat))
		select {
		case <-changed:
			pause.Stop()
			return true
		case <-pause.C:
			if still > 0 {
				return true
			}
			if !out.send(": alive\n\n") {
				return false
			}
		case <-r.Context().Done():
			return false
		}
	}
}

// closedChannel is one that something has been said on already.
var closedChannel = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// newest is the summary, encoded, and whether it is older than the model. It is not made more often than it is sent.
func (m *Model) newest() (body []byte, old bool, err error) {
	m.last.mu.Lock()
	defer m.last.mu.Unlock()
	m.mu.Lock()
	told := m.told
	m.mu.Unlock()
	l, still := &m.last, m.still()
	if now := time.Now(); l.body == nil || l.told != told && now.Sub(l.at) >= streamEvery/2 || still > 0 && now.Sub(l.at) >= still/2 {
		if body, err = encodeJSON(m.Summary()); err != nil {
			return nil, false, err
		}
		l.body, l.at, l.told = body, now, told
		clear(l.steps)
	}
	return l.body, l.told != told, nil
}

// newestSteps are the points after a step, as of the newest summary: made once for all who have been sent as far.
func (m *Model) newestSteps(after int64) (points, error) {
	l := &m.last
	l.mu.Lock()
	defer l.mu.Unlock()
	if p, there := l.steps[after]; there {
		return p, nil
	}
	p := points{last: after}
	if s := m.Series(after+1, 0, streamPoints); len(s.Step) > 0 {
		body, err := encodeJSON(s)
		if err != nil {
			return p, err
		}
		p = points{body, s.Step[len(s.Step)-1]}
	}
	if l.steps == nil {
		l.steps = map[int64]points{}
	}
	l.steps[after] = p
	return p, nil
}

func (m *Model) lastStep() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := len(m.series.steps); n > 0 {
		return m.series.steps[n-1]
	}
	return -1
}

// eventWriter writes server-sent events.
type eventWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

func (e *eventWriter) event(name string, data []byte) bool {
	return e.send("event: " + name + "\ndata: " + string(data) + "\n\n")
}

// send reports whether the reader takes it. One that takes nothing for long is left.
func (e *eventWriter) send(text string) bool {
	_ = e.control.SetWriteDeadline(time.Now().Add(streamPatience)) // where the connection knows deadlines
	if _, err := e.w.Write([]byte(text)); err != nil {
		return false
	}
	return e.control.Flush() == nil
}
