package gateway

import (
	"context"
	"errors"

	"github.com/headway-rl/headway/api/protocol"
)

// errTrailing is of JSON with more behind it.
var errTrailing = errors.New("more follows the JSON")

// invalid refuses a request for one of its fields.
func invalid(field, format string, args ...any) *protocol.Refusal {
	return protocol.Refuse(protocol.CodeInvalid, format, args...).With("field", field)
}

// refusalOf is what a client is told of an error. The cause of an ended context comes first: it
// says why the gateway itself gave a turn up.
func refusalOf(ctx context.Context, err error) *protocol.Refusal {
	if refusal, ok := errors.AsType[*protocol.Refusal](context.Cause(ctx)); ok && errors.Is(err, context.Canceled) {
		return refusal
	}
	if errors.Is(err, protocol.ErrRunEnded) {
		return protocol.Refuse(protocol.CodeExpired, "the run has ended: nothing is sampled any more")
	}
	return protocol.RefusalOf(err)
}

// rendering is what a client is told where a template cannot be had or used; nil without an error.
func rendering(err error, what string) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*protocol.Refusal](err); ok || errors.Is(err, context.Canceled) {
		return err
	}
	return protocol.Refuse(protocol.CodeUnavailable, "%s failed: %v", what, err)
}
