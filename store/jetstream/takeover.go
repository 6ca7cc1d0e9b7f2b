package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// takeoversKey is the key of the run's takeovers in its bucket.
	takeoversKey = "takeovers"
	// takeoversMost is how many are kept. What a writer before them has put is gone long since.
	takeoversMost = 256
)

// takeover says that the writer of an epoch has read the payload stream up to the message Last. A turn that a writer of an earlier
// epoch puts behind it counts for nothing. Its lease was lost, so nobody was told of it. The engine may have taken the weights of
// the newer writer in the middle of it.
type takeover struct {
	Epoch uint64 `json:"epoch"`
	Last  uint64 `json:"last"`
}

// takeovers are those of a run, the oldest first.
type takeovers []takeover

// late reports whether a message was put behind what a writer of a later epoch had read.
func (all takeovers) late(epoch, seq uint64) bool {
	return slices.ContainsFunc(all, func(t takeover) bool { return t.Epoch > epoch && t.Last < seq })
}

// takeovers reads those that are recorded, and of which revision they are: 0 for none.
func (l *lease) takeovers(ctx context.Context) (all takeovers, revision uint64, err error) {
	var entry jetstream.KeyValueEntry
	err = l.store.again(ctx, func(ctx context.Context) (err error) {
		entry, err = l.bucket.Get(ctx, takeoversKey)
		return err
	})
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, 0, nil
	}
	if err == nil {
		revision, err = entry.Revision(), json.Unmarshal(entry.Value(), &all)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("store: the key %s of the bucket %s: %w", takeoversKey, l.store.names.bucket, err)
	}
	return all, revision, nil
}

// record adds this writer's takeover to those that it has read, of a revision. One that a deposed writer has added meanwhile
// is left out: that one has not begun.
func (l *lease) record(ctx context.Context, read takeovers, revision, last uint64) error {
	all := append(slices.Clone(read), takeover{l.epoch, last})
	value, err := json.Marshal(all[max(0, len(all)-takeoversMost):])
	for err == nil {
		err = l.store.again(ctx, func(ctx context.Context) (err error) {
			if revision == 0 {
				_, err = l.bucket.Create(ctx, takeoversKey, value)
			} else {
				_, err = l.bucket.Update(ctx, takeoversKey, value, revision)
			}
			return err
		})
		if err == nil || !wrongSequence(err) && !errors.Is(err, jetstream.ErrKeyExists) {
			break
		}
		var there takeovers
		if there, revision, err = l.takeovers(ctx); err == nil && len(there) > 0 {
			switch newest := there[len(there)-1].Epoch; {
			case newest == l.epoch: // the answer was lost
				return nil
			case newest > l.epoch:
				return ErrFenced
			}
		}
	}
	if err != nil {
		return fmt.Errorf("store: recording the takeover: %w", err)
	}
	return nil
}
