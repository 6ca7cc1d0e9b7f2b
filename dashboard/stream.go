package dashboard

import (
	"net/http"
	"sync"
	"time"
)

// Times of the stream: the least between two summaries, and what is waited for a reader that takes nothing.
const (
	streamEvery     = 250 * time.Millisecond
	streamPatience  = 30 * time.Second
	streamHeartbeat = 15 * time.Second
)

// latest is the newest summary, encoded once for all who follow.
type latest struct {
	mu   sync.Mutex
	body []byte
	at   time.Time
}

// serveStream sends the newest state whenever there is a new one. A reader that is slow is sent the newest when
// it reads again: nothing is kept for it.
func (m *Model) serveStream(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusOK)
	out := eventWriter{w: w, control: http.NewResponseController(w)}
	sent := m.lastStep() // what came before is asked for by GET series
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		changed := m.Changed()
		body, err := m.newest()
		if err != nil || !out.event("summary", body) {
			return
		}
		if points := m.Series(sent+1, 0, pointsMax); len(points.Step) > 0 {
			sent = points.Step[len(points.Step)-1]
			body, err := encodeJSON(points)
			if err != nil || !out.event("step", body) {
				return
			}
		}
		if !wait(r, &out, changed, pause) {
			return
		}
	}
}

// wait returns when there is something new, at the earliest after the pause between two summaries; false when the
// reader has left.
func wait(r *http.Request, out *eventWriter, changed <-chan struct{}, pause *time.Timer) bool {
	pause.Reset(streamEvery)
	select {
	case <-pause.C:
	case <-r.Context().Done():
		return false
	}
	for {
		pause.Reset(streamHeartbeat)
		select {
		case <-changed:
			pause.Stop()
			return true
		case <-pause.C:
			if !out.send(": alive\n\n") {
				return false
			}
		case <-r.Context().Done():
			return false
		}
	}
}

// newest is the summary of now, encoded; not made more often than it is sent.
func (m *Model) newest() ([]byte, error) {
	m.last.mu.Lock()
	defer m.last.mu.Unlock()
	if now := time.Now(); m.last.body == nil || now.Sub(m.last.at) >= streamEvery/2 {
		body, err := encodeJSON(m.Summary())
		if err != nil {
			return nil, err
		}
		m.last.body, m.last.at = body, now
	}
	return m.last.body, nil
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
