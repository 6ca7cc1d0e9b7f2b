package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/headway-rl/headway/explain/diagnosis"
)

// Diagnose diagnoses the run as it is now. quick leaves out what takes long. An error that wraps diagnosis.ErrEmpty says that there
// is nothing to judge yet.
type Diagnose func(ctx context.Context, quick bool) (diagnosis.Report, error)

// judgedFor is how long the diagnosis of a run that goes on is shown before it is made anew.
const judgedFor = 15 * time.Second

// findings keeps the newest diagnosis: it takes seconds, and is made for all who ask at once.
type findings struct {
	mu      sync.Mutex
	running chan struct{} // closed when the one under way has ended, nil for none
	report  *diagnosis.Report
	err     error
	at      time.Time
	// whole: the report is of a run that has ended.
	whole bool
}

// Findings returns the diagnosis, which is made if there is none that is new enough. It may take seconds. A diagnosis
// whose callers have all left goes on for the next caller.
func (m *Model) Findings(ctx context.Context) (diagnosis.Report, error) {
	if m.opt.Diagnose == nil {
		return diagnosis.Report{}, &refusal{http.StatusNotFound, "not_found", "this run keeps no trace that could be judged"}
	}
	f := &m.findings
	for {
		f.mu.Lock()
		ended := m.hasEnded()
		if fresh := f.report != nil || f.err != nil; fresh && (f.whole || !ended && time.Since(f.at) < judgedFor) {
			defer f.mu.Unlock()
			if f.err != nil {
				return diagnosis.Report{}, notJudged(f.err)
			}
			return *f.report, nil
		}
		if f.running == nil {
			f.running = make(chan struct{})
			go m.diagnose(ended)
		}
		done := f.running
		f.mu.Unlock()
		select {
		case <-done:
		case <-ctx.Done():
			return diagnosis.Report{}, ctx.Err()
		}
	}
}

func (m *Model) hasEnded() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ended
}

// diagnose makes a diagnosis: in full once the run has ended, and quickly while it needs the machine itself. Where the model's
// work has ended before, the newest one stays.
func (m *Model) diagnose(ended bool) {
	report, err := m.judged(!ended)
	f := &m.findings
	f.mu.Lock()
	defer f.mu.Unlock()
	if m.opt.Context.Err() == nil || err == nil {
		f.report, f.err = &report, err
	} else if f.report == nil || f.err != nil {
		f.err = errNotJudged
	}
	f.at, f.whole = time.Now(), ended
	close(f.running)
	f.running = nil
}

// errNotJudged is why a run that ends has no diagnosis here.
var errNotJudged = errors.New("the run ended before it was judged here: headway diagnose judges it")

// judged calls Diagnose. A defect of it is no reason to end the run.
func (m *Model) judged(quick bool) (report diagnosis.Report, err error) {
	defer func() {
		if broken := recover(); broken != nil {
			err = fmt.Errorf("the diagnosis failed, by a defect: %v", broken)
		}
	}()
	return m.opt.Diagnose(m.opt.Context, quick)
}

// notJudged is the answer where there is no diagnosis.
func notJudged(err error) error {
	if errors.Is(err, diagnosis.ErrEmpty) {
		return &refusal{http.StatusConflict, "conflict", err.Error() + ": findings follow with its first train steps"}
	}
	if errors.Is(err, errNotJudged) {
		return &refusal{http.StatusServiceUnavailable, "unavailable", err.Error()}
	}
	return &refusal{http.StatusInternalServerError, "internal", err.Error()}
}
