package remote

import (
	"context"
	"fmt"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/store/weights"
)

// Ack implements api.Trainers. It is idempotent: of a batch that is committed it
// returns the version.
func (t *Trainer) Ack(ctx context.Context, lease loop.LeaseID, req protocol.AckRequest) (protocol.AckReply, error) {
	if err := checkCaller(req.Trainer, 0, 0); err != nil {
		return protocol.AckReply{}, err
	}
	if err := checkMetrics(req.Metrics); err != nil {
		return protocol.AckReply{}, err
	}
	t.commits.Lock()
	defer t.commits.Unlock()
	o, version, err := t.acknowledge(lease, req)
	if o == nil || err != nil {
		return protocol.AckReply{Version: version}, err
	}
	draft, err := t.draft(ctx, weights.Description{Version: version, Lease: lease, Kind: weights.KindNone})
	if err != nil {
		t.release(o)
		return protocol.AckReply{}, err
	}
	defer func() { _ = draft.Abort() }() // what it cannot delete now goes with the next start
	if _, err := t.place(ctx, draft, o, version, req.Metrics); err != nil {
		return protocol.AckReply{}, err
	}
	return protocol.AckReply{Version: version}, nil
}

// acknowledge finds what an ack is about: an offer, which is then being committed as the
// version, or nil and the version that the lease was committed as before.
func (t *Trainer) acknowledge(lease loop.LeaseID, req protocol.AckRequest) (*offer, loop.Version, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.serving(); err != nil {
		return nil, 0, err
	}
	if t.offer == nil || t.offer.lease != lease {
		if version, ok := t.committed(lease); ok {
			return nil, version, nil
		}
	}
	o, err := t.held(lease, req.Attempt, req.Trainer, 0)
	if err != nil {
		return nil, 0, err
	}
	if err := (stamps{forward: req.ForwardVersion, step: req.StepVersion}).check(o.version); err != nil {
		return nil, 0, err
	}
	t.touch(0) // whatever comes of it
	version := o.version + 1
	if version%loop.Version(t.opt.SyncEvery) == 0 {
		return nil, 0, protocol.Refuse(protocol.CodeConflict, "version %d goes to the engines (every %d), which need its weights: publish it, which ends the step", version, t.opt.SyncEvery).
			With("version", version).With("sync_every", t.opt.SyncEvery)
	}
	o.busy++
	return o, version, nil
}

// Nack implements api.Trainers. It is idempotent: of a batch that went back before
// it has nothing to do.
func (t *Trainer) Nack(_ context.Context, lease loop.LeaseID, req protocol.NackRequest) error {
	if err := checkCaller(req.Trainer, 0, 0); err != nil {
		return err
	}
	if len(req.Reason) > reasonMax {
		return protocol.Refuse(protocol.CodeInvalid, "a reason of %d bytes, want at most %d", len(req.Reason), reasonMax)
	}
	t.commits.Lock() // a version that is being committed counts
	defer t.commits.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.serving(); err != nil {
		return err
	}
	t.expire()
	if last, ok := t.ended.find(lease); ok && last.made == loop.NoVersion && req.Attempt <= last.attempt {
		return nil
	}
	if t.offer == nil || t.offer.lease != lease {
		if version, ok := t.committed(lease); ok {
			return protocol.Refuse(protocol.CodeConflict, "lease %d was committed as version %d and cannot go back", lease, version).With("version", version)
		}
	}
	o, err := t.held(lease, req.Attempt, req.Trainer, anyRank)
	if err != nil {
		return err
	}
	if req.Failed {
		t.opt.Logf("trainer: %s failed at lease %d, attempt %d: %q", req.Trainer, lease, req.Attempt, req.Reason)
		t.end(o, loop.NoVersion, port.StepReport{}, fmt.Errorf("trainer: %s failed at lease %d, attempt %d: %q", req.Trainer, lease, req.Attempt, req.Reason))
		return nil
	}
	t.giveBack(o, "trainer %s gave it back: %q", req.Trainer, req.Reason)
	return nil
}

// reasonMax bounds the text of a nack, in bytes.
const reasonMax = 4096
