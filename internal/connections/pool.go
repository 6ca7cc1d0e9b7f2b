package connections

import (
	"container/heap"
	"container/list"
	"net"
	"net/netip"
)

// source is where a connection comes from: an address, of IPv6 its network of 64 bits, which one machine has
// whole. The zero value is of what has no address.
type source = netip.Prefix

func peerOf(address net.Addr) source {
	tcp, ok := address.(*net.TCPAddr)
	if !ok {
		return source{}
	}
	ip := tcp.AddrPort().Addr().Unmap()
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	prefix, _ := ip.WithZone("").Prefix(bits) // the zero value where there is no address
	return prefix
}

// pool has connections that may be closed. The next is the oldest of the peer that has most, so that a peer that opens
// many closes its own.
type pool struct {
	size  int
	since uint64
	peers map[source]*peer
	order peers
}

// peer has the connections of one source, the oldest first.
type peer struct {
	of    source
	held  list.List
	place int // in the heap
}

// seat is a connection's place in the pool that it is in, which is one at most.
type seat struct {
	since uint64
	peer  *peer
	at    *list.Element
}

// add has a connection in as the youngest.
func (p *pool) add(c *connection) {
	if p.peers == nil {
		p.peers = map[source]*peer{}
	}
	of := p.peers[c.from]
	if of == nil {
		of = &peer{of: c.from}
		p.peers[c.from] = of
	}
	p.since++
	c.seat = seat{since: p.since, peer: of, at: of.held.PushBack(c)}
	if p.size++; of.held.Len() == 1 {
		heap.Push(&p.order, of)
	} else {
		heap.Fix(&p.order, of.place)
	}
}

// remove takes a connection out that is in.
func (p *pool) remove(c *connection) {
	of := c.seat.peer
	of.held.Remove(c.at)
	c.seat = seat{}
	if p.size--; of.held.Len() == 0 {
		heap.Remove(&p.order, of.place)
		delete(p.peers, of.of)
	} else {
		heap.Fix(&p.order, of.place)
	}
}

// next is the one to close, nil for none.
func (p *pool) next() *connection {
	if len(p.order) == 0 {
		return nil
	}
	return p.order[0].oldest()
}

func (p *peer) oldest() *connection { return p.held.Front().Value.(*connection) }

// peers are a heap, the one with most connections first. Of two alike it is the one that has the older.
type peers []*peer

func (p peers) Len() int { return len(p) }

func (p peers) Less(i, j int) bool {
	if a, b := p[i].held.Len(), p[j].held.Len(); a != b {
		return a > b
	}
	return p[i].oldest().since < p[j].oldest().since
}

func (p peers) Swap(i, j int) {
	p[i], p[j] = p[j], p[i]
	p[i].place, p[j].place = i, j
}

func (p *peers) Push(x any) {
	of := x.(*peer)
	of.place = len(*p)
	*p = append(*p, of)
}

func (p *peers) Pop() any {
	last := len(*p) - 1
	of := (*p)[last]
	(*p)[last] = nil
	*p = (*p)[:last]
	return of
}
