package batch

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"slices"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// GroupBody makes the body of one finished group alone. It follows from the group and the options, and from no batch.
// It is the same before the group is leased, in every lease and after a restart. Side channels and media are no part of it, because
// the store may lose rows.
func GroupBody(g port.Group, o Options) (*Body, error) {
	p, err := New(port.Batch{Version: math.MaxInt32, Groups: []port.Group{g}}, o)
	if err != nil {
		return nil, err
	}
	lease := p.lease
	lease.WorldSize, lease.Version = 1, g.ReadyVersion
	lease.StalenessMax = g.ReadyVersion - g.StartVersion
	lease.StalenessMean = float64(lease.StalenessMax)
	return newBody(p, lease, []int{0}, false)
}

// Reference hashes the body of one group.
func (b *Body) Reference() (protocol.GroupReference, error) {
	hash := sha256.New()
	if _, err := b.WriteTo(hash); err != nil {
		return protocol.GroupReference{}, err
	}
	return protocol.GroupReference{GroupStamp: b.lease.Stamps[0], Tokens: b.lease.Tokens, Bytes: b.size, SHA256: hex.EncodeToString(hash.Sum(nil))}, nil
}

// Find returns a group of the batch.
func (p *Batch) Find(id loop.GroupID) (port.Group, bool) {
	at := slices.IndexFunc(p.groups, func(g port.Group) bool { return g.ID == id })
	if at < 0 {
		return port.Group{}, false
	}
	return p.groups[at], true
}
