package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/store/jetstream"
	"github.com/headway-rl/headway/transfer"
	"github.com/headway-rl/headway/weights"
)

// objectPrefix begins the names of a run's versions in its object store.
const objectPrefix = "weights/"

// objectRoad takes versions from a run's object store. It implements transfer.Road.
type objectRoad struct {
	remote weights.Remote
	local  *weights.Store
	dir    string
	keep   int
	now    func() time.Time
}

func (c *receiveCmd) objectRoad(ctx context.Context, a *app) (transfer.Road, func(), error) {
	nothing := func() {}
	store, err := jetstream.Open(ctx, jetstream.Options{URL: c.NATS, Run: c.Objects})
	if err != nil {
		return nil, nothing, runError("", "%w", err)
	}
	done := func() { store.Close() }
	objects, err := store.Objects(ctx)
	if err != nil {
		return nil, done, err
	}
	local, err := weights.Open(c.Dir, weights.Options{Always: c.Sync})
	if err != nil {
		return nil, done, err
	}
	return &objectRoad{remote: weights.Remote{Objects: objects, Prefix: objectPrefix}, local: local, dir: c.Dir, keep: c.Keep, now: a.Now}, done, nil
}

// Fetch implements transfer.Road.
func (o *objectRoad) Fetch(ctx context.Context, version loop.Version, _ []string) (transfer.Phases, error) {
	began := o.now()
	if err := o.remote.Pull(ctx, o.local, version); err != nil {
		return transfer.Phases{}, err
	}
	p := transfer.Phases{TransferS: o.now().Sub(began).Seconds()}
	if m, err := o.local.Manifest(version); err == nil {
		for _, f := range m.Files {
			p.Bytes += f.Size
		}
	}
	keepFrom, _, err := o.local.Keep(o.keep)
	if err == nil {
		err = o.local.Prune(keepFrom)
	}
	return p, err
}

// Path implements transfer.Road.
func (o *objectRoad) Path(version loop.Version) string {
	return filepath.Join(o.dir, fmt.Sprintf("v%06d", version))
}

// Discard implements transfer.Road.
func (o *objectRoad) Discard(version loop.Version) error { return os.RemoveAll(o.Path(version)) }

// Clean implements transfer.Road: opening the directory has done it.
func (o *objectRoad) Clean() error { return nil }
