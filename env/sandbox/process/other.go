//go:build !linux

// Package process needs Linux.
package process

import (
	"context"
	"errors"

	"github.com/headway-rl/headway/env/sandbox"
)

// Driver makes no boxes on this system.
type Driver struct{}

var _ sandbox.Driver = (*Driver)(nil)

var errLinux = errors.New("the sandbox driver process needs Linux: use a driver of boxes elsewhere, such as swerex, kubernetes or e2b")

// New returns an error that says that Linux is needed.
func New(string) (*Driver, error) { return nil, errLinux }

// Name as configs have it.
func (*Driver) Name() string { return "process" }

// Check returns an error.
func (*Driver) Check(context.Context) (sandbox.Boundary, error) { return sandbox.Boundary{}, errLinux }

// Create returns an error.
func (*Driver) Create(_ context.Context, id sandbox.ID, _ sandbox.Spec) (sandbox.Box, error) {
	return nil, sandbox.Fail(sandbox.StartFailed, "create", id, "%w", errLinux)
}

// List names no boxes.
func (*Driver) List(context.Context, string) ([]sandbox.ID, error) { return nil, nil }

// Destroy finds none.
func (*Driver) Destroy(context.Context, sandbox.ID) error { return nil }
