package kubernetes

import (
	"context"
	"errors"

	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/internal/kubernetes"
)

// call is one request for a box.
type call struct {
	op           string
	id           sandbox.ID
	method, path string
	query        map[string]string
	body         any
}

// errNotFound is wrapped by the error of what the API does not have.
var errNotFound = errors.New("not there")

// do asks for something once. What the API refuses has the class of why.
func (d *Driver) do(ctx context.Context, c call, into any) error {
	err := d.api.Do(ctx, kubernetes.Request{Method: c.method, Path: c.path, Query: c.query, Body: c.body}, into)
	return classed(c.op, c.id, err)
}

// classed gives an error of the API its class.
func classed(op string, id sandbox.ID, err error) error {
	failure, is := errors.AsType[*kubernetes.Error](err)
	if !is {
		return err
	}
	class := sandbox.Protocol
	switch failure.Kind {
	case kubernetes.NotFound:
		return sandbox.Fail(sandbox.Lost, op, id, "%w: %w", errNotFound, err)
	case kubernetes.Quota:
		class = sandbox.Quota
	case kubernetes.Denied, kubernetes.Invalid, kubernetes.Conflict:
		class = sandbox.Refused
	case kubernetes.Down:
		class = sandbox.BackendDown
	}
	return sandbox.Fail(class, op, id, "%w", err)
}
