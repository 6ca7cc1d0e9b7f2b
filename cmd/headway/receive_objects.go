package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/plane"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/store/jetstream"
	"github.com/headway-rl/headway/store/transfer"
	"github.com/headway-rl/headway/store/weights"
)

// objectDelivery takes versions from a run's object store. It implements transfer.Delivery.
type objectDelivery struct {
	remote weights.Remote
	local  *weights.Store
	dir    string
	keep   int
	now    func() time.Time
	served loop.Version
}

func (c *receiveCmd) objectDelivery(ctx context.Context, a *app.Process) (transfer.Delivery, func(), error) {
	nothing := func() {}
	objects, err := jetstream.OpenObjects(ctx, jetstream.Options{URL: c.NATS, Run: c.Objects})
	if err != nil {
		return nil, nothing, failure.Run("", "%w", err)
	}
	done := func() { objects.Close() }
	local, err := weights.Open(c.Dir, weights.Options{Always: c.Durable})
	if err != nil {
		return nil, done, err
	}
	return &objectDelivery{remote: weights.Remote{Objects: objects, Prefix: plane.ObjectPrefix}, local: local, dir: c.Dir, keep: c.Keep, now: a.Now, served: loop.NoVersion}, done, nil
}

// Fetch implements transfer.Delivery.
func (o *objectDelivery) Fetch(ctx context.Context, load transfer.Load) (transfer.Phases, error) {
	began, version := o.now(), load.Version
	if err := o.discardForeign(ctx, version); err != nil {
		return transfer.Phases{}, err
	}
	if err := o.remote.Pull(ctx, o.local, version); err != nil {
		return transfer.Phases{}, err
	}
	p := transfer.Phases{TransferS: o.now().Sub(began).Seconds()}
	if m, err := o.local.Manifest(version); err == nil {
		for _, f := range m.Files {
			p.Bytes += f.Size
		}
	}
	keepFrom, _, err := o.local.Keep(o.keep + 1)
	if err == nil {
		err = o.local.Prune(max(min(keepFrom, o.served, version), 0))
	}
	return p, err
}

// discardForeign removes versions of another run: those that are newer, and this one if it
// is not the same.
func (o *objectDelivery) discardForeign(ctx context.Context, version loop.Version) error {
	versions, err := o.local.Versions()
	for i := 0; err == nil && i < len(versions); i++ {
		if versions[i] > version {
			err = o.Discard(versions[i])
		}
	}
	there, ofErr := o.local.Manifest(version)
	if err != nil || ofErr != nil {
		return err
	}
	wanted, err := o.remote.Manifest(ctx, version)
	if err == nil && (there.Lease != wanted.Lease || there.Kind == weights.KindFull && wanted.Kind == weights.KindFull && !slices.Equal(modelFiles(there), modelFiles(wanted))) {
		err = o.Discard(version)
	}
	return err
}

// modelFiles are the files of a version that engines load.
func modelFiles(m weights.Manifest) []weights.File {
	return slices.DeleteFunc(slices.Clone(m.Files), func(f weights.File) bool { return strings.HasPrefix(f.Name, "optimizer") })
}

// Path implements transfer.Delivery.
func (o *objectDelivery) Path(version loop.Version) string {
	return filepath.Join(o.dir, fmt.Sprintf("v%06d", version))
}

// Served implements transfer.Delivery.
func (o *objectDelivery) Served(version loop.Version) { o.served = version }

// Discard implements transfer.Delivery.
func (o *objectDelivery) Discard(version loop.Version) error { return transfer.Remove(o.Path(version)) }

// Clean implements transfer.Delivery: opening the directory has done it.
func (o *objectDelivery) Clean() error { return nil }
