package dashboard

import (
	"math"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/attribution"
)

// place is where a group is on its way.
type place uint8

const (
	placeOpen place = iota
	placeQueued
	placeHeld
	placeLeased
	placeEnded
)

// group is what is remembered of one.
type group struct {
	id           loop.GroupID
	start, ready loop.Version
	step         loop.Version // that trained it, -1 for none
	opened       int64        // ns
	readyAt      int64
	tokens       int64
	reward       float64
	least, most  float32
	scored, size int32
	lastSlot     int32
	lane         int32
	place        place
	end          loop.End
	staleness    loop.Version
	// from is its staleness by source, known says that it is.
	from  [attribution.Sources]float32
	known bool
}

// groups follows every group from its first rollout on, and keeps the figures of the newest that have ended.
type groups struct {
	live  map[loop.GroupID]*group
	free  []*group
	ended ring
	// leased are those of the batch at the trainer, lease its number.
	leased []loop.GroupID
	lease  loop.LeaseID
	size   int32
	keeps  bool // trained groups may be trained again
	draw   *drawing
	// first and newest are the smallest and the largest number of a group that has been seen, 0 for none.
	first, newest loop.GroupID
}

// ring keeps the newest groups, found by id.
type ring struct {
	all   []group
	at    map[loop.GroupID]int
	next  int
	limit int
}

func (r *ring) put(g group) {
	if at, there := r.at[g.id]; there {
		r.all[at] = g
		return
	}
	if len(r.all) < r.limit {
		r.at[g.id] = len(r.all)
		r.all = append(r.all, g)
		return
	}
	delete(r.at, r.all[r.next].id)
	r.all[r.next], r.at[g.id] = g, r.next
	r.next = (r.next + 1) % r.limit
}

func newGroups(rules loop.Config, draw *drawing, limit int) *groups {
	return &groups{live: map[loop.GroupID]*group{}, ended: ring{at: map[loop.GroupID]int{}, limit: limit},
		size: int32(rules.GroupSize), keeps: rules.Policy == loop.PolicyReplay, draw: draw}
}

// find returns a group, of those that have ended too, nil if it is not known.
func (s *groups) find(id loop.GroupID) *group {
	if g := s.live[id]; g != nil {
		return g
	}
	if at, there := s.ended.at[id]; there {
		return &s.ended.all[at]
	}
	return nil
}

// event takes what an event says of groups, before the actions that follow from it.
func (s *groups) event(ev *loop.Event) {
	switch ev.Kind {
	case loop.RolloutScored:
		g := s.live[ev.Group]
		if g == nil || ev.Mark == loop.MarkPruned || math.IsNaN(float64(ev.Reward)) || math.IsInf(float64(ev.Reward), 0) {
			return
		}
		if g.scored == 0 || ev.Reward < g.least {
			g.least = ev.Reward
		}
		if g.scored == 0 || ev.Reward > g.most {
			g.most = ev.Reward
		}
		g.scored++
		g.tokens += int64(ev.Tokens)
		g.reward += float64(ev.Reward)
		g.lastSlot = ev.Slot
	case loop.TrainStepFailed, loop.LeaseReturned:
		if ev.Lease == s.lease {
			s.giveBack()
		}
	case loop.TrainerRestored:
		s.giveBack()
	case loop.TrainStepEnded:
		s.leased = s.leased[:0]
	}
}

// giveBack returns the batch at the trainer to the queue.
func (s *groups) giveBack() {
	for _, id := range s.leased {
		if g := s.live[id]; g != nil && g.place == placeLeased {
			g.place, g.lane = placeQueued, s.draw.waits(id, g.start)
		}
	}
	s.leased = s.leased[:0]
}

// action takes one action.
func (s *groups) action(a *loop.Action, now int64) {
	switch a.Kind {
	case loop.StartRollout:
		if g := s.live[a.Group]; g == nil {
			s.open(a, now)
		}
	case loop.GroupQueued, loop.GroupHeld:
		s.waits(a, now)
	case loop.GroupLeased:
		if g := s.live[a.Group]; g != nil {
			s.draw.leaves(a.Group, g.lane, SpanQueued)
			g.place, g.lane = placeLeased, -1
			if s.lease != a.Lease {
				s.leased, s.lease = s.leased[:0], a.Lease
			}
			s.leased = append(s.leased, a.Group)
		}
	case loop.GroupTrained:
		s.trained(a)
	case loop.GroupEnded:
		s.gone(a)
	}
}

// split takes where the staleness of a group that is being trained came from.
func (s *groups) split(one attribution.Group) {
	if g := s.live[one.ID]; g != nil {
		g.known = true
		for source, versions := range one.Split {
			g.from[source] = float32(versions)
		}
	}
}

func (s *groups) open(a *loop.Action, now int64) {
	var g *group
	if n := len(s.free); n > 0 {
		g, s.free = s.free[n-1], s.free[:n-1]
	} else {
		g = new(group)
	}
	*g = group{id: a.Group, start: a.Version, ready: loop.NoVersion, step: loop.NoVersion, opened: now, size: s.size, lane: -1}
	s.live[a.Group] = g
	if s.first == 0 || a.Group < s.first {
		s.first = a.Group
	}
	s.newest = max(s.newest, a.Group)
}

// waits takes a group that became ready: into the queue, or held outside it.
func (s *groups) waits(a *loop.Action, now int64) {
	g := s.live[a.Group]
	if g == nil {
		return
	}
	if g.ready == loop.NoVersion {
		g.readyAt = now
	}
	g.start, g.ready = a.StartVersion, a.Version
	if a.Kind == loop.GroupHeld {
		g.place = placeHeld
		return
	}
	g.place, g.lane = placeQueued, s.draw.waits(a.Group, g.start)
}

func (s *groups) trained(a *loop.Action) {
	g := s.live[a.Group]
	if g == nil {
		return
	}
	g.staleness, _, _ = a.Staleness()
	g.step, g.end = a.Version+1, loop.EndTrained
	if g.lastSlot >= 0 && int(g.lastSlot) < len(s.draw.slotTrack) {
		s.draw.arrows.add(flow{from: g.readyAt, to: s.draw.run.Lease.SinceNS, track: int32(s.draw.slotTrack[g.lastSlot]), version: int32(g.start), group: g.id})
	}
	if s.keeps {
		g.place, g.lane = placeQueued, s.draw.waits(a.Group, g.start)
		s.ended.put(*g)
		return
	}
	s.forget(g)
}

func (s *groups) gone(a *loop.Action) {
	g := s.live[a.Group]
	if g == nil {
		return
	}
	s.draw.leaves(g.id, g.lane, SpanFailed)
	g.end = a.End
	s.forget(g)
}

func (s *groups) forget(g *group) {
	g.place, g.lane = placeEnded, -1
	delete(s.live, g.id)
	s.ended.put(*g)
	if len(s.free) < 1024 {
		s.free = append(s.free, g)
	}
}
