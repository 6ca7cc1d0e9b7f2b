package tinker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// Options say where a service is.
type Options struct {
	// URL up to /api/v1, which it does not have, such as http://host:8000.
	URL string
	// Key is sent as X-API-Key; empty sends none.
	Key string
	// Name of the run, which the service shows beside the session; may be empty.
	Name string
	// Patience is how long an operation is asked for while the service cannot be reached or says that it is busy. Then
	// the service counts as down. 0 means 5 minutes. An operation that the service has under way may last.
	Patience time.Duration
	// Dial opens a connection; nil dials over TCP.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Logf is told of repeated tries and of heartbeats that fail; nil tells no one.
	Logf func(format string, args ...any)
}

// The errors that this package's errors wrap, beside an [Error] where the service has answered.
var (
	// ErrDown: the service could not be reached within Options.Patience.
	ErrDown = errors.New("the service is down")
	// ErrGone: the service does not know the session, model, sampler or path any more.
	ErrGone = errors.New("the service does not know it any more")
	// ErrRefused: the request itself is refused, and would be again.
	ErrRefused = errors.New("the service refuses")
	// ErrBroken: an earlier operation on the model failed or its outcome is not known. So its gradients, weights and
	// order are not known either: another model goes on from saved state.
	ErrBroken = errors.New("the model is not to be used any more")
)

// errUnknown: a request was sent and no answer says whether the service has taken it.
var errUnknown = errors.New("whether the service has taken the request is not known")

// Error is what a service has answered instead of a result.
type Error struct {
	// Operation is the request's name in the API, such as optim_step.
	Operation string
	// Status is HTTP's; 200 where a future holds the failure in its answer.
	Status int
	// Category of a failed future: user, server or unknown; empty where the service names none.
	Category string
	// Detail is the service's own text.
	Detail string
}

// Error says what failed and the service's words about it.
func (e *Error) Error() string {
	detail := cmp.Or(e.Detail, "no reason given")
	if e.Category != "" {
		return fmt.Sprintf("%s: the service answers with status %d, category %s: %s", e.Operation, e.Status, e.Category, detail)
	}
	return fmt.Sprintf("%s: the service answers with status %d: %s", e.Operation, e.Status, detail)
}

// withDefaults checks options and fills in what is left to the package.
func (o Options) withDefaults() (Options, error) {
	if !strings.HasPrefix(o.URL, "http://") && !strings.HasPrefix(o.URL, "https://") {
		return o, fmt.Errorf("url %q: want http:// or https:// and a host", o.URL)
	}
	o.URL = strings.TrimRight(o.URL, "/")
	if o.Patience < 0 {
		return o, fmt.Errorf("patience %s: want a duration above 0, or 0 for 5 minutes", o.Patience)
	}
	o.Patience = cmp.Or(o.Patience, 5*time.Minute)
	if o.Logf == nil {
		o.Logf = func(string, ...any) {}
	}
	return o, nil
}
