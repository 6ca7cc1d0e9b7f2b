package bias

import "github.com/headway-rl/headway/loop"

// state of a rollout's newest attempt.
type state uint8

const (
	unissued state = iota
	running
	done
	gone
)

// rollout is one of a live group's; environment times are in microseconds.
type rollout struct {
	attempt, slot int32
	state         state
	// known: the length and time of its first attempt are those started.
	known                           bool
	tokens, startedTokens           int32
	environment, startedEnvironment int64
}

// liveGroup is what is remembered of a group until it ends; id 0 is a free place.
type liveGroup struct {
	id     loop.GroupID
	prompt int64
	level  int32
	scored int32
	solved int32
	uses   int32
	// birth is the train step during which it was opened, counted from the window's
	// start; negative before it.
	birth loop.Version
}

// table finds live groups by id. IDs rise, and live ones lie close together, so
// the low bits of an id are its place; the table doubles where two collide.
type table struct {
	places  []liveGroup
	samples []rollout // those of place i begin at i·stride
	stride  int
}

func (t *table) init(atLeast, stride int) {
	n := 64
	for n < atLeast {
		n *= 2
	}
	t.places, t.samples, t.stride = make([]liveGroup, n), make([]rollout, n*stride), stride
}

func (t *table) index(id loop.GroupID) int { return int(id) & (len(t.places) - 1) }

// get returns a live group, nil if it is not.
func (t *table) get(id loop.GroupID) *liveGroup {
	if g := &t.places[t.index(id)]; g.id == id && id != 0 {
		return g
	}
	return nil
}

// rollouts returns those of a live group.
func (t *table) rollouts(g *liveGroup) []rollout {
	at := t.index(g.id) * t.stride
	return t.samples[at : at+t.stride]
}

// put makes a group live that is not.
func (t *table) put(id loop.GroupID) *liveGroup {
	for t.places[t.index(id)].id != 0 {
		t.double()
	}
	g := &t.places[t.index(id)]
	*g = liveGroup{id: id}
	clear(t.rollouts(g))
	return g
}

func (t *table) double() {
	old := *t
	t.init(2*len(old.places), old.stride)
	for i := range old.places {
		if g := &old.places[i]; g.id != 0 {
			*t.put(g.id) = *g
			copy(t.rollouts(g), old.samples[i*old.stride:(i+1)*old.stride])
		}
	}
}
