package port

import (
	"context"
)

// Fleet starts and stops engines, each by its index in Options.Engines. For one engine its methods are
// called one after the other, in the order of the loop's decisions. They should return soon after their
// context is done; one that does not is not waited for.
type Fleet interface {
	// Acquire returns once the engine is there and can be given weights. One that is there already is
	// not started again. Its context is cancelled where the engine is to be given back after all.
	Acquire(ctx context.Context, engine int) error
	// Release gives an engine back, on which nothing runs. One that is not there is no error.
	Release(ctx context.Context, engine int) error
}

// Returned is implemented by engines that forget the server that they had, since a fleet has taken it back: another may come
// in its place.
type Returned interface {
	// Returned says that nothing plays there any more, and that the server ends. It does not block.
	Returned()
}
