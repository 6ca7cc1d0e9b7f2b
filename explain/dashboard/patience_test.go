package dashboard

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/headway-rl/headway/explain/diagnosis"
)

// timedWriter is a connection that looks after the deadlines of what is written, and breaks after some writes.
type timedWriter struct {
	*httptest.ResponseRecorder
	t *testing.T
	// given says that the next write has a deadline of its own, breaks after how many writes there is an error.
	given          bool
	writes, breaks int
}

func (w *timedWriter) SetWriteDeadline(time.Time) error {
	w.given = true
	return nil
}

func (w *timedWriter) Write(p []byte) (int, error) {
	if w.writes++; w.breaks > 0 && w.writes > w.breaks {
		return 0, errors.New("the deadline is over")
	}
	if !w.given || len(p) > deadlineBytes {
		w.t.Errorf("%d bytes, with a deadline of their own: %v", len(p), w.given)
	}
	w.given = false
	return w.ResponseRecorder.Write(p)
}

// No answer waits for ever for a reader that takes nothing: every piece has a deadline, and the first that fails is the last.
func TestAnswersHaveTheirTime(t *testing.T) {
	m := newTestModel(1000)
	handler := m.Handler()
	ask := func(path string, breaks int) *timedWriter {
		w := &timedWriter{ResponseRecorder: httptest.NewRecorder(), t: t, breaks: breaks}
		handler.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		return w
	}
	for path, status := range map[string]int{"/api/v1/view/info": 200, "/api/v1/view/no": 404, "/api/v1/view/tile?level=15": 200, "/": 200} {
		if w := ask(path, 0); w.Code != status || w.writes == 0 {
			t.Errorf("%s: %d in %d writes", path, w.Code, w.writes)
		}
	}
	w := httptest.NewRecorder()
	if handler.ServeHTTP(w, httptest.NewRequest("OPTIONS", "/api/v1/view/queue", nil)); w.Code != 405 || w.Header().Get("Allow") != "GET, HEAD" {
		t.Errorf("a method that is not there: %d %v", w.Code, w.Header())
	}
	for breaks, want := range map[int]int{0: 4, 1: 2} {
		w := &timedWriter{ResponseRecorder: httptest.NewRecorder(), t: t, breaks: breaks}
		write(w, httptest.NewRequest("GET", "/", nil), make([]byte, 3*deadlineBytes+1))
		if w.writes != want {
			t.Errorf("%d writes to a reader that takes %d, want %d", w.writes, breaks, want)
		}
	}
}

// The newest diagnosis outlives the model's work, and a defect of it is said and ends nothing.
func TestFindingsWhenARunEnds(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	judge := func(ctx context.Context, quick bool) (diagnosis.Report, error) {
		return diagnosis.Report{Run: "judged"}, ctx.Err()
	}
	m := New(Options{Rules: rules(), Context: ctx, Diagnose: judge})
	if _, err := m.Findings(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.End("")
	stop()
	for range 2 {
		if r, err := m.Findings(t.Context()); err != nil || r.Run != "judged" {
			t.Errorf("after the end: %q, %v", r.Run, err)
		}
	}
	late := New(Options{Rules: rules(), Context: ctx, Diagnose: judge})
	late.End("")
	var answer struct {
		Error struct{ Code, Message string }
	}
	if code := get(t, late.Data(), "/api/v1/view/findings", &answer); code != http.StatusServiceUnavailable || answer.Error.Message != errNotJudged.Error() {
		t.Errorf("one that was never judged: %d %+v", code, answer)
	}
	broken := New(Options{Rules: rules(), Diagnose: func(context.Context, bool) (diagnosis.Report, error) { panic("out of range") }})
	if code := get(t, broken.Data(), "/api/v1/view/findings", &answer); code != 500 || answer.Error.Message != "the diagnosis failed, by a defect: out of range" {
		t.Errorf("a defect: %d %+v", code, answer)
	}
}

// A panic that net/http takes leaves no lock behind, where a model was half observed.
func TestPanicsLeaveNoLock(t *testing.T) {
	m := newTestModel(1000)
	m.groups, m.rec = nil, nil
	for name, ask := range map[string]func(){"groups": func() { m.Groups(Query{}) }, "group": func() { m.Group(1) }, "queue": func() { m.Queue() },
		"summary": func() { m.Summary() }, "schedules": func() { m.scheduleInputs() }, "frontier": func() { m.setting() }} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic: the test is of nothing", name)
				}
			}()
			ask()
		}()
		if !m.mu.TryLock() {
			t.Fatalf("%s: the lock is held", name)
		}
		m.mu.Unlock()
	}
}
