package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/channel"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/store/weights"
)

// Weights is where versions are published; *weights.Store is one.
type Weights interface {
	// Begin starts to publish a version from files.
	Begin(ctx context.Context, d weights.Description) (*weights.Draft, error)
	// Manifest of a version; weights.ErrNotFound where it is not there.
	Manifest(version loop.Version) (weights.Manifest, error)
	// Versions that are published, with or without weights, ascending.
	Versions() ([]loop.Version, error)
	// Newest version that has weights, loop.NoVersion if there is none.
	Newest() loop.Version
}

// LeaseDefault is how long a lease lasts without being renewed where nothing is said.
const LeaseDefault = time.Minute

// Options of a trainer. Weights and Clock must be given.
type Options struct {
	// Weights is where versions are published.
	Weights Weights
	// Clock is the time since some instant, in nanoseconds: leases age by it. It never goes back, even when the wall
	// clock does, and may stand still.
	Clock func() int64
	// Lease is how long a batch stays with a trainer of which a rank is silent; 0 means LeaseDefault.
	Lease time.Duration
	// SyncEvery: versions that are multiples of it go to the engines and need weights; 0 means 1.
	SyncEvery int
	// Steps of the run, 0 for no end. Run names it, Config is its document; all three are for the trainer to know.
	Steps       int
	Run, Config string
	// NormalizeStd and Vocabulary are batch.Options'.
	NormalizeStd bool
	Vocabulary   int
	// Groups has the groups that can be trained, or are in training; nil has those of the batch on offer alone.
	Groups Groups
	// Blobs keeps the rows of side channels; nil where there are none.
	Blobs port.Blobs
	// Channels, if not nil, are the side channels that the run asks engines for.
	Channels func() []channel.Header
	// Initial makes version 0 where none is committed; nil has the trainer make it.
	Initial func(ctx context.Context) error
	// OnReady, if not nil, is told that a trainer asks for a batch and none is on offer; again every few
	// seconds until one is.
	OnReady func()
	// OnRestored, if not nil, is told that a trainer published an earlier version's state as this version. After
	// a restart it may be told once more.
	OnRestored func(version loop.Version)
	// Fence, if not nil, is asked right before a version is committed; an error refuses it: this
	// process is the run's writer no more.
	Fence func() error
	// Collective, if not nil, confirms that a version has gone to the engines over the collective of that
	// name. Without it every publish must bring files.
	Collective func(ctx context.Context, name string, version loop.Version) error
	// Validation, if not nil, answers held-out prompts greedily; prompts 0 means the run's number of
	// them. Each sample is a group of its own.
	Validation func(ctx context.Context, prompts int) ([]port.Sample, error)
	// Logf, if not nil, is told what an operator may want to know. Several goroutines call it.
	Logf func(format string, args ...any)
}

func (o Options) withDefaults() Options {
	o.Lease = cmp.Or(o.Lease, LeaseDefault)
	o.SyncEvery = max(o.SyncEvery, 1)
	if o.Channels == nil {
		o.Channels = func() []channel.Header { return nil }
	}
	if o.OnReady == nil {
		o.OnReady = func() {}
	}
	if o.OnRestored == nil {
		o.OnRestored = func(loop.Version) {}
	}
	if o.Fence == nil {
		o.Fence = func() error { return nil }
	}
	if o.Logf == nil {
		o.Logf = func(string, ...any) {}
	}
	return o
}

// Validate reports the first option that cannot be.
func (o Options) Validate() error {
	switch {
	case o.Weights == nil || o.Clock == nil:
		return errors.New("trainer: weights and clock must be given")
	case o.Lease < 0:
		return fmt.Errorf("trainer: a lease lasts %v, want a positive time, or 0 for %v", o.Lease, LeaseDefault)
	case o.SyncEvery < 0 || o.Steps < 0 || o.Vocabulary < 0:
		return fmt.Errorf("trainer: sync every %d, %d steps and a vocabulary of %d, want none negative", o.SyncEvery, o.Steps, o.Vocabulary)
	}
	return nil
}
