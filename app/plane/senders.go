package plane

import (
	"context"
	"slices"
	"strings"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/engine/collective"
	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/loop"
)

// buildSenders makes what stands between engines whose weights are distributed and the process that
// sends them; nothing where there is no such engine.
func (p *Plane) buildSenders() {
	if slices.ContainsFunc(p.Cfg.Engines, parts.ByCollective) {
		p.senders = collective.NewCoordinator(collective.Options{Meetings: p.meetings, Logf: p.logf})
		p.groups = openRegistry(p.Dir, p.shared(), p.logf)
	}
}

// confirmSent permits a version to be published without its files: the sender of that name holds it,
// and no engine would read it from the store.
func (p *Plane) confirmSent(ctx context.Context, name string, version loop.Version) error {
	var readers []string
	for _, e := range p.Cfg.Engines {
		switch {
		case !parts.ByCollective(e) && e.Weights != string(upstream.DeliveryNone):
			readers = append(readers, e.Name+" (weights "+e.Weights+")")
		case len(p.receivers.Forms(e.Name)) > 0:
			readers = append(readers, e.Name+" (headway receive)")
		}
	}
	if len(readers) > 0 {
		return protocol.Refuse(protocol.CodeInvalid, "rendezvous %.80q: these engines read versions from the store, and could not take version %d: %s. Publish files, or have all take weights distributed",
			name, version, strings.Join(readers, ", "))
	}
	return p.senders.Confirm(ctx, name, version)
}

// senderStatus is what the status says of the sender, nil where no engine takes its weights from one.
func (p *Plane) senderStatus() *protocol.Sender {
	if p.senders == nil {
		return nil
	}
	s := p.senders.Status()
	return &s
}

// shared has the notes of all writers of the run, nil where these have its directory in common.
func (p *Plane) shared() notes {
	if p.Cfg.Store.NATS.Inside() {
		return nil
	}
	return p.log
}
