package tinkertest

import (
	"cmp"
	"context"
	"time"
)

// Fault is what goes wrong with a request. More than one of its fields may be set.
type Fault struct {
	// Operation that it happens to, by its name in the API, such as retrieve_future; empty for every one.
	Operation string
	// Skip is how many requests of the operation pass before it happens, Times to how many it then does; 0 means 1.
	Skip, Times int
	// Delay before the request is looked at.
	Delay time.Duration
	// Hold before the request is looked at until the channel is closed; nil for not at all.
	Hold <-chan struct{}
	// LoseRequest ends the connection before the request is looked at.
	LoseRequest bool
	// Status is answered in the operation's stead, and nothing is done; 0 for none.
	Status int
	// Plain has the status come as from a proxy or a web server, in words that are no JSON.
	Plain bool
	// LoseAnswer does what is asked and ends the connection without an answer.
	LoseAnswer bool
	// LoseFuture takes the request and executes it, and does not know it when asked for the result.
	LoseFuture bool
	// Fails takes the request and has it fail with this text, nothing executed; empty for not.
	Fails string
}

// Fail has a fault happen. Of several for the same request the first given does.
func (s *Service) Fail(f Fault) {
	f.Times = cmp.Or(f.Times, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, &f)
}

// met counts a request and is the fault that happens to it, the zero one for none.
func (s *Service) met(operation string) Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests[operation]++
	for _, f := range s.faults {
		if f.Operation != "" && f.Operation != operation || f.Times == 0 {
			continue
		}
		if f.Skip > 0 {
			f.Skip--
			continue
		}
		f.Times--
		return *f
	}
	return Fault{}
}

// before has happen what does before a request is looked at; false ends the connection.
func (f Fault) before(ctx context.Context, closed <-chan struct{}) bool {
	if f.LoseRequest {
		return false
	}
	if f.Delay > 0 {
		timer := time.NewTimer(f.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-closed:
			return false
		}
	}
	if f.Hold != nil {
		select {
		case <-f.Hold:
		case <-closed:
			return false
		}
	}
	return true
}
