package upstream

import (
	"errors"
	"net"
	"net/http"
	"syscall"
)

// Errors that callers tell apart.
var (
	// ErrClosed is wrapped by what generations end with when the engine is closed under them.
	ErrClosed = errors.New("the engine is closed")
	// ErrLied is wrapped by the error of a response that cannot be. Examples are tokens outside the
	// vocabulary, missing log-probs, more tokens than were asked for, unknown versions.
	ErrLied = errors.New("the server's answer cannot be")
	// ErrRefused is wrapped by the error of a request that the server will not answer, however
	// often it is asked.
	ErrRefused = errors.New("the server refuses the request")
	// ErrLacking is wrapped by the error of a server that lacks what a run cannot do without.
	ErrLacking = errors.New("the server lacks what is needed")
	// ErrKind is wrapped by the error of a server that answers, and is of another kind than was said, or
	// serves another model. Waiting for it changes nothing.
	ErrKind = errors.New("the server is of another kind")
	// errUnknownLabel is wrapped by the error of tokens that weights have sampled of which nobody here knows.
	errUnknownLabel = errors.New("it was sampled by weights that were not put there from here")
)

// otherKind is an error that wraps ErrKind, in its own words.
type otherKind struct{ error }

func (o otherKind) Unwrap() []error { return []error{o.error, ErrKind} }

// OtherKind marks an error as one of a server of another kind.
func OtherKind(err error) error { return otherKind{err} }

// Unknown reports whether a server says that it has no such path. A server of another kind says so, and one
// that is not up yet does not.
func Unknown(err error) bool {
	status := StatusOf(err)
	return status == http.StatusNotFound || status == http.StatusMethodNotAllowed
}

// unreached reports whether an error is that no connection came about: nothing has been asked of anybody.
func unreached(err error) bool {
	failure, ok := errors.AsType[*net.OpError](err)
	return ok && failure.Op == "dial"
}

// refused reports whether nobody listens where the server was: its process has ended.
func refused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

// halt is why a stream is ended from this side.
type halt struct{ why string }

func (h *halt) Error() string { return h.why }

// Reasons to end a stream. haltInterrupt, haltPruned: the caller wants no more of it. haltCut: for
// a switch; it goes on afterwards. haltUnknown: the weights are unknown; it waits for known ones.
// haltSpoilt: it samples while it should stand still. haltDown: the server is gone. haltSilent: it brings nothing. haltClosed: the engine is closed.
var (
	haltInterrupt = &halt{"it was interrupted"}
	haltPruned    = &halt{"it was stopped by its check"}
	haltCut       = &halt{"it was cut off for a switch of weights"}
	haltUnknown   = &halt{"it was cut off because the server's weights are unknown"}
	haltSpoilt    = &halt{"the server samples while it should stand still, so nobody knows which weights did"}
	haltDown      = &halt{"it was cut off because the server is down"}
	haltSilent    = &halt{"it brought no token for too long"}
	haltClosed    = &halt{"the engine was closed"}
)
