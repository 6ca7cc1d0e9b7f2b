package replay

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/headway-rl/headway/loop"
)

// A rollout's generation took the time it took because of its length, of how many
// others its engine had, of whether a train step ran, and of all that the machine
// did meanwhile. What is kept of it is the engine's work: the time it would have
// taken at the engine's mean speed. The work is the integral of the engine's
// relative speed over the rollout's stay, so that a simulation at the same speeds
// takes as long again, and one at others longer or shorter in proportion.

// span is a stay of a rollout at an engine.
type span struct {
	group          loop.GroupID
	sample, number int32
	engine         int32
	// took is when the engine took it up, first its first token, if that was in this span
	// (else as took), to its end there.
	took, first, to int64
	// lag is the time before that, from its start on.
	lag int64
	// firstWork and work are the engine's until first and from first on, once known.
	firstWork, work float64
}

// interval is when something was so.
type interval struct{ from, to int64 }

// epoch is the time from one train step's end to the next.
type epoch struct {
	until int64
	cells []trimmedCell
}

// trimmedCell is a kind of decode step in one epoch.
type trimmedCell struct {
	cell
	measured
}

// speedTable is an engine's decode speed relative to the mean, by active slots: without
// and with a train step running. Nil where nothing was measured.
type speedTable *[2][]float64

// relative looks a speed up; beyond the table it is that of its end.
func relative(table speedTable, active int, busy bool) float64 {
	if table == nil {
		return 1
	}
	i := 0
	if busy {
		i = 1
	}
	return table[i][min(active, len(table[i])-1)]
}

// epochStepsMin is how many decode steps an epoch's speed rests on at least; with fewer
// it is joined to the next.
const epochStepsMin = 8

// epochFactors returns the engines' speed in every epoch over what the table says of
// the decode steps made in it: what slowed the whole machine down.
func (r *Recording) epochFactors(table speedTable, nsPerToken float64) []float64 {
	factors := make([]float64, len(r.epochs))
	var expected, taken float64
	var steps int64
	from := 0
	for i := range r.epochs {
		for _, c := range r.epochs[i].cells {
			expected += float64(c.steps) * nsPerToken / relative(table, c.active, c.busy)
			taken += float64(c.ns)
			steps += c.steps
		}
		if steps < epochStepsMin && i < len(r.epochs)-1 {
			continue
		}
		factor := 1.0
		if taken > 0 && expected > 0 {
			factor = expected / taken
		}
		for ; from <= i; from++ {
			factors[from] = factor
		}
		expected, taken, steps = 0, 0, 0
	}
	return factors
}

// factor is that of an epoch: beyond the last, as in the last quarter.
func (r *Recording) factor(epoch int) float64 {
	n := len(r.factors)
	if n == 0 {
		return 1
	}
	if epoch >= n {
		quarter := (n + 3) / 4
		epoch = n - quarter + (epoch-n)%quarter
	}
	return r.factors[epoch]
}

// clock is an engine's, which shows the work done.
type clock struct {
	at     int64
	work   float64
	active int
	holds  int
}

// turn is what happens at one instant of a run: to one engine, or to all.
type turn struct {
	at   int64
	kind turnKind
	// what is the number of a span, or of an epoch.
	what   int32
	engine int32
}

type turnKind uint8

const (
	stepEnds turnKind = iota // before the next begins at that instant
	stepBegins
	epochEnds
	holdBegins
	holdEnds
	spanBegins
	spanFirst
	spanEnds
)

// pace finds what every sample takes of its engine, and forgets what that rests on.
func (r *Recording) pace(rules loop.Config) {
	nsPerToken := r.NSPerToken()
	table := r.speeds(rules.Concurrency(), nsPerToken)
	r.factors = r.epochFactors(table, nsPerToken)
	r.correctSyncs(nsPerToken)
	r.still = r.stillShare(nsPerToken)
	for _, holds := range r.holds {
		for i := range holds { // they finish what they are at first
			holds[i].from = holds[i].to - int64(r.still*float64(holds[i].to-holds[i].from))
		}
	}
	r.paces(table, nsPerToken)
	r.spans, r.busy, r.holds, r.epochs, r.sights = nil, nil, nil, nil, nil
}

// paces turns the spans of the run into what each sample takes of its engine.
func (r *Recording) paces(table speedTable, nsPerToken float64) {
	for i := range r.spans {
		s := &r.spans[i]
		if s.first > s.took { // the engine begins a step before the first token
			entered := s.took
			s.took = max(entered, s.first-int64(nsPerToken))
			s.lag = s.took - entered
		}
	}
	r.integrate(table)
	for i := range r.spans {
		s := &r.spans[i]
		if g := &r.groups[s.group-1]; g.samples[s.sample].scored && g.samples[s.sample].number == s.number {
			g.samples[s.sample].add(s)
		}
	}
}

// add adds a span's work to its sample.
func (s *recordedSample) add(p *span) {
	if !s.begun {
		s.begun = true
		s.startNS = p.lag
		s.firstNS = float32(p.firstWork)
	}
	work := p.work
	if s.firstNS == 0 { // nobody told of its first token: it took as long as the others
		s.firstNS = float32(work / float64(max(s.tokens, 1)))
		work -= float64(s.firstNS)
	}
	s.tokenNS += float32(work / float64(max(s.tokens-1, 1)))
}

// turns lists what happens at the engines, in order.
func (r *Recording) turns() []turn {
	turns := make([]turn, 0, 3*len(r.spans)+2*len(r.busy)+len(r.epochs))
	for _, b := range r.busy {
		turns = append(turns, turn{at: b.from, kind: stepBegins, engine: -1}, turn{at: b.to, kind: stepEnds, engine: -1})
	}
	for i := range r.epochs {
		turns = append(turns, turn{at: r.epochs[i].until, kind: epochEnds, engine: -1})
	}
	for engine, holds := range r.holds {
		for _, h := range holds {
			turns = append(turns, turn{at: h.from, kind: holdBegins, engine: int32(engine)}, turn{at: h.to, kind: holdEnds, engine: int32(engine)})
		}
	}
	for i := range r.spans {
		s := &r.spans[i]
		turns = append(turns, turn{s.took, spanBegins, int32(i), s.engine}, turn{s.first, spanFirst, int32(i), s.engine}, turn{s.to, spanEnds, int32(i), s.engine})
	}
	slices.SortStableFunc(turns, func(a, b turn) int {
		if c := cmp.Compare(a.at, b.at); c != 0 {
			return c
		}
		return cmp.Compare(a.kind, b.kind)
	})
	return turns
}

// integrate runs every engine's clock through the recorded time.
func (r *Recording) integrate(table speedTable) {
	clocks := make([]clock, len(r.Header.Loop.EngineSlots))
	busy, epoch := false, 0
	settle := func(c *clock, at int64) {
		if c.holds == 0 {
			c.work += float64(at-c.at) * relative(table, c.active, busy) * r.factor(epoch)
		}
		c.at = at
	}
	for _, t := range r.turns() {
		if t.engine < 0 {
			for i := range clocks {
				settle(&clocks[i], t.at)
			}
			switch t.kind {
			case epochEnds:
				epoch++
			default:
				busy = t.kind == stepBegins
			}
			continue
		}
		c := &clocks[t.engine]
		settle(c, t.at)
		switch t.kind {
		case holdBegins:
			c.holds++
		case holdEnds:
			c.holds--
		case spanBegins:
			c.active++
			r.spans[t.what].firstWork = -c.work
		case spanFirst:
			r.spans[t.what].firstWork += c.work
			r.spans[t.what].work = -c.work
		case spanEnds:
			c.active--
			r.spans[t.what].work += c.work
		}
	}
}

// recordedSync is how long a sync took.
type recordedSync struct{ loadNS, switchNS int64 }

// sight is what an engine's first tokens say of a switch to a version.
type sight struct {
	engine  int32
	version loop.Version
	// told is when the run was told of the switch, seen when it had the first token made
	// under that version or a newer one.
	told, seen int64
}

// correctSyncs moves switches to where the tokens say they were: a run is told of one a moment
// after the engine made it, and tokens of the new version may be there before. The
// first token under it was begun behind the switch, at most half a step sooner as the
// simulation counts.
func (r *Recording) correctSyncs(nsPerToken float64) {
	late := map[loop.Version]int64{}
	for _, s := range r.sights {
		by := max(s.told+int64(nsPerToken/2)-s.seen, 0)
		if least, ok := late[s.version]; !ok || by < least {
			late[s.version] = by
		}
	}
	for v, by := range late {
		if s, ok := r.syncs[v]; ok {
			fromSwitch := min(by, s.switchNS)
			r.syncs[v] = recordedSync{max(s.loadNS-(by-fromSwitch), 0), s.switchNS - fromSwitch}
		}
	}
}

// stillShare returns the share of a switch through which engines stand still under pause: what
// they make during one, beside what they make in as much time else, says it. Where the run
// had another mode, they are taken to stand still for all but the wait for a step's end.
func (r *Recording) stillShare(nsPerToken float64) float64 {
	if r.Header.Loop.Sync != loop.SyncPause {
		var all, wait float64
		for _, v := range slices.Sorted(maps.Keys(r.syncs)) { // sums depend on their order
			s := r.syncs[v]
			all += float64(s.switchNS)
			wait += min(nsPerToken/2, float64(s.switchNS))
		}
		return 1 - wait/max(all, 1)
	}
	var held int64
	for _, holds := range r.holds {
		for _, h := range holds {
			held += h.to - h.from
		}
	}
	engines := int64(len(r.holds))
	if held == 0 || r.lastNS*engines <= held || r.made == 0 {
		return 1
	}
	during := float64(r.madeHeld) / float64(held)
	apart := float64(r.made-r.madeHeld) / float64(r.lastNS*engines-held)
	return min(max(1-during/max(apart, 1e-300), 0), 1)
}

// syncTimes returns how long the sync that brings a version took in the run. A setting
// under which a version is worth scale recorded ones has its syncs at the same place
// of the run; the last quarter stands in for those after its end.
func (r *Recording) syncTimes(scale float64) func(loop.Version) (loadNS, switchNS int64) {
	known := slices.Sorted(maps.Keys(r.syncs))
	n := len(known)
	return func(v loop.Version) (int64, int64) {
		if n == 0 {
			return 0, 0
		}
		i, _ := slices.BinarySearch(known, loop.Version(math.Round(float64(v)/scale)))
		if i >= n {
			quarter := (n + 3) / 4
			i = n - quarter + int(v)%quarter
		}
		s := r.syncs[known[i]]
		still := int64(float64(s.switchNS) * r.still)
		return s.loadNS + s.switchNS - still, still
	}
}
