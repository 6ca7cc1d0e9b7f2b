package llamacpp

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/headway-rl/headway/engine/upstream"
)

// Kind is the word for llama-server in documents.
const Kind = "llamacpp"

// Options say how a server takes new weights. The zero value is for one that never does.
type Options struct {
	// Command starts the server: program and arguments, in which {weights} stands for the directory
	// of the version and {label} for its label. With --alias {label} the server says itself what it serves.
	Command []string
	// Convert, if given, is run before Command, with the same words replaced.
	Convert []string
	// Grace is how long a server may take to end after SIGTERM before it is killed; 0 means 10 s.
	Grace time.Duration
	// Logf is told of programs that are started and ended; nil for none.
	Logf func(format string, args ...any)
}

// Dialect speaks to llama-server. A server that is restarted for new weights needs one of its own.
type Dialect struct {
	options Options
	process process
}

var (
	_ upstream.Dialect   = (*Dialect)(nil)
	_ upstream.Restarter = (*Dialect)(nil)
	_ upstream.Templater = (*Dialect)(nil)
	_ upstream.Scorer    = (*Dialect)(nil)
)

// New returns a dialect.
func New(o Options) *Dialect {
	o.Grace = cmp.Or(o.Grace, 10*time.Second)
	if o.Logf == nil {
		o.Logf = func(string, ...any) {}
	}
	return &Dialect{options: o}
}

// Kind implements upstream.Dialect.
func (*Dialect) Kind() string { return Kind }

// Abort implements upstream.Dialect: llama-server ends a response whose connection is closed, and has no other way.
func (*Dialect) Abort(context.Context, *upstream.Server, string, *upstream.Capabilities) error {
	return nil
}

// errNoPause is what Pause says.
var errNoPause = errors.New("llama-server cannot be paused: it takes new weights by being started again (weights: restart, with a command)")

// Pause implements upstream.Dialect: it cannot.
func (*Dialect) Pause(context.Context, *upstream.Server, upstream.Update, *upstream.Capabilities) error {
	return errNoPause
}

// Resume implements upstream.Dialect: nothing was paused.
func (*Dialect) Resume(context.Context, *upstream.Server, *upstream.Capabilities) error { return nil }

// Update implements upstream.Dialect by a restart.
func (d *Dialect) Update(ctx context.Context, s *upstream.Server, u upstream.Update, _ *upstream.Capabilities) error {
	return d.Restart(ctx, s, u)
}

// Version implements upstream.Dialect: the alias that the command has given the server as {label}.
func (d *Dialect) Version(ctx context.Context, s *upstream.Server, _ *upstream.Capabilities) (string, error) {
	if !d.labelled() {
		return "", nil
	}
	var p properties
	if err := s.Call(ctx, http.MethodGet, "/props", nil, &p); err != nil {
		return "", err
	}
	return p.Alias, nil
}
