package serving

import (
	"math/bits"
	"sort"
)

// pool is the replicas of one kind and the rule by which calls come to them.
type pool struct {
	replicas []*replica
	rule     Placement
	last     int             // chosen
	groups   map[int]int32   // where the calls of a group go
	ring     []ringPoint     // consistent hashing's
	homes    map[int32]int32 // where a session's calls go
}

// ringPoint is one of a replica's places on the ring.
type ringPoint struct {
	at      uint64
	replica int32
}

// pointsOfReplica are how many places each replica has on the ring: usual for consistent hashing, and few enough that
// shares differ by some ten percent.
const pointsOfReplica = 100

func newPool(replicas []*replica, rule Placement) *pool {
	p := &pool{replicas: replicas, rule: rule, last: -1, groups: map[int]int32{}, homes: map[int32]int32{}}
	if rule == ConsistentHash {
		for i := range replicas {
			for k := range uint64(pointsOfReplica) {
				p.ring = append(p.ring, ringPoint{mix(uint64(i)<<32 | k | 1<<63), int32(i)})
			}
		}
		sort.Slice(p.ring, func(a, b int) bool { return p.ring[a].at < p.ring[b].at })
	}
	return p
}

// mix spreads a number over all 64 bits: the finaliser of a multiplicative hash.
func mix(x uint64) uint64 {
	high, low := bits.Mul64(x^0x9e3779b97f4a7c15, 0xd6e8feb86659fd93)
	high, low = bits.Mul64(high^low, 0xa0761d6478bd642f)
	return high ^ low
}

// choose returns the replica for a call.
func (p *pool) choose(c *call, t *talk) *replica {
	if len(p.replicas) == 1 {
		return p.replicas[0]
	}
	switch p.rule {
	case RoundRobin:
		return p.take(p.following())
	case LeastLoaded:
		return p.take(p.least(func(r *replica) float64 { return float64(r.flight) }))
	case GroupLeastLoaded:
		return p.keep(p.groups, t.session.Group, func() int {
			return p.least(func(r *replica) float64 { return float64(r.promised) })
		})
	case PrefixWeighted:
		return p.take(p.weighed(c))
	}
	home, known := p.homes[c.talk]
	if !known {
		home = int32(p.home(c))
		p.homes[c.talk] = home
	}
	return p.replicas[home]
}

// home chooses where a session stays.
func (p *pool) home(c *call) int {
	switch p.rule {
	case StickyLeastLoaded:
		p.last = p.least(func(r *replica) float64 { return float64(r.flight) })
	case ConsistentHash:
		at := mix(uint64(c.talk))
		i := sort.Search(len(p.ring), func(i int) bool { return p.ring[i].at >= at })
		return int(p.ring[i%len(p.ring)].replica)
	default:
		p.last = p.following()
	}
	return p.last
}

// keep chooses once for a key.
func (p *pool) keep(homes map[int]int32, key int, choose func() int) *replica {
	home, known := homes[key]
	if !known {
		home = int32(choose())
		homes[key] = home
		p.last = int(home)
	}
	return p.replicas[home]
}

func (p *pool) following() int { return (p.last + 1) % len(p.replicas) }

func (p *pool) take(i int) *replica {
	p.last = i
	return p.replicas[i]
}

// least is the replica of the lowest figure; of equal ones that which follows the last chosen.
func (p *pool) least(figure func(*replica) float64) int {
	best, lowest := -1, 0.0
	for k := range p.replicas {
		i := (p.following() + k) % len(p.replicas)
		if f := figure(p.replicas[i]); best < 0 || f < lowest {
			best, lowest = i, f
		}
	}
	return best
}

// Weights of the parts of a prefix-weighted score, each from 0 to 1: the prefix that is there, the shortness of the
// queue against the others', and the free share of the cache. They are the defaults of llm-d's scheduler.
const (
	weightPrefix = 3
	weightQueue  = 2
	weightCache  = 2
)

// weighed is the replica of the best score.
func (p *pool) weighed(c *call) int {
	shortest, longest := p.replicas[0].waiting.len(), p.replicas[0].waiting.len()
	for _, r := range p.replicas[1:] {
		shortest, longest = min(shortest, r.waiting.len()), max(longest, r.waiting.len())
	}
	return p.least(func(r *replica) float64 {
		score := weightPrefix*r.has(c) + weightCache*(1-float64(r.cache.active)/float64(r.cache.capacity))
		if longest == shortest {
			return -score - weightQueue
		}
		return -score - weightQueue*float64(longest-r.waiting.len())/float64(longest-shortest)
	})
}

// has is the share of a call's prompt that a replica need not read, its host's cache included.
func (r *replica) has(c *call) float64 {
	whole := c.input / int32(r.engine.BlockTokens)
	if whole == 0 || r.engine.NoPrefixCache {
		return 0
	}
	found, _ := r.cache.find(&c.chain, whole)
	if r.host != nil && !r.engine.HostHidden {
		held, _ := r.host.find(&c.chain, whole)
		found = max(found, held)
	}
	return float64(found) / float64(whole)
}
