// Package fleet starts and stops rollout engines for a live run. It is the live runtime's [port.Fleet]
// over a Driver, which knows one way of having engines run somewhere.
//
// An engine has a place in the fleet, its index in the document. The loop takes the lowest that is away
// and gives the highest that is there back, so that a driver may number what it starts.
package fleet

import (
	"context"
	"time"
)

// Driver has engines run somewhere. Its methods are safe for concurrent use; for one engine they are
// called one after the other. They return soon after their context is done.
type Driver interface {
	// Start has an engine run, and returns once the engine has come up as far as the driver can see. One
	// that runs already is not started again.
	Start(ctx context.Context, engine int) error
	// Alive returns nil as long as an engine that was started may still come to answer, and else why not.
	Alive(ctx context.Context, engine int) error
	// Stop has an engine run no more. One that does not run is no error.
	Stop(ctx context.Context, engine int) error
	// Close ends what must not outlive this process.
	Close() error
}

// Options of a Fleet.
type Options struct {
	// Driver starts and stops.
	Driver Driver
	// Names of the engines by their index, for words.
	Names []string
	// Probe asks an engine whether it can be given weights; nil believes the driver. Where it answers what no
	// waiting will change, the error wraps ErrUnfit.
	Probe func(ctx context.Context, engine int) error
	// Logf is told news for people, by several goroutines; nil for none.
	Logf func(format string, args ...any)
}

// States of an engine of a fleet.
const (
	// Away: it does not run, as far as is known.
	Away = "away"
	// Starting: it was asked for and does not answer yet.
	Starting = "starting"
	// Running: it has answered since it was asked for.
	Running = "running"
	// Stopping: it is being given back.
	Stopping = "stopping"
	// Failed: it did not come up, or could not be stopped.
	Failed = "failed"
)

// Status is one engine of a fleet.
type Status struct {
	// Name of the engine, State one of the above, Since when.
	Name, State string
	Since       time.Time
	// Starts counts the times it was asked for, Failures those that came to nothing.
	Starts, Failures int
	// StartS is how long the last start that went well took, in seconds; 0 for none.
	StartS float64
	// Error of the last failure, empty once it runs.
	Error string
}
