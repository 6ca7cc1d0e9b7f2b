package diagnosis

import (
	"cmp"
	"math"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
)

// row sums what was made between two train steps. It is what drift is seen in.
type row struct {
	timeNS int64
	// Rollouts scored, their tokens and time (ns), those solved and those at the most tokens so far.
	scored, tokens, durationNS, solved int64
	// Groups ready, the sum of their longest rollouts (ns, and tokens), and how many were filtered.
	ready, longestNS, longestTokens, filtered int64
	failed                                    int64
	clip, logRatio, ess                       float64
	// learned: the last three are known.
	learned bool
}

// liveGroup is what the tally remembers of a group until it is ready.
type liveGroup struct {
	scored, longestTokens int32
	longestNS             int64
}

// rowsMax bounds how many rows are kept: with more, neighbours are put together.
const rowsMax = 1 << 16

// tally folds what metrics does not keep step by step.
type tally struct {
	rows   []row
	now    row
	groups map[loop.GroupID]*liveGroup
	// each row stands for so many train steps.
	steps, inRow int64
	arrivals     arrivals
	fleet        fleet
	lengths      lengthSample
	// dropped counts the groups that were evicted or discarded, of the whole run.
	dropped int64
	// engineOf is the engine of each slot.
	engineOf []int32
}

func newTally(cfg loop.Config) *tally {
	t := &tally{groups: map[loop.GroupID]*liveGroup{}, steps: 1, fleet: fleet{engines: make([]engineTally, len(cfg.EngineSlots))}}
	for i, slots := range cfg.EngineSlots {
		for range slots {
			t.engineOf = append(t.engineOf, int32(i))
		}
	}
	return t
}

// observe takes an event with what followed from it.
func (t *tally) observe(ev *trace.Event, actions []loop.Action) {
	t.now.timeNS = ev.Time
	switch ev.Kind {
	case loop.RolloutScored:
		t.scored(ev)
	case loop.RolloutFailed:
		t.now.failed++
	case loop.EngineLost:
		t.fleet.lost(ev.Engine)
	case loop.TrainStepEnded, loop.TrainerRestored:
		t.fleet.made(ev.Version)
	}
	for i := range actions {
		t.action(ev, &actions[i])
	}
	if ev.Kind == loop.TrainStepEnded {
		t.endStep()
	}
}

func (t *tally) scored(ev *trace.Event) {
	if ev.Mark == loop.MarkPruned || math.IsNaN(float64(ev.Reward)) {
		return
	}
	if uint(ev.Slot) < uint(len(t.engineOf)) && !ev.Resumed {
		t.fleet.generated(t.engineOf[ev.Slot], int64(ev.Tokens), ev.GenerateNS)
	}
	spent := ev.GenerateNS + ev.EnvironmentNS
	t.now.scored++
	t.now.tokens += int64(ev.Tokens)
	t.now.durationNS += spent
	if ev.Mark == loop.MarkSolved {
		t.now.solved++
	}
	g := t.groups[ev.Group]
	if g == nil {
		return // late: its group is gone
	}
	g.scored++
	g.longestTokens, g.longestNS = max(g.longestTokens, ev.Tokens), max(g.longestNS, spent)
	t.lengths.add(ev.Group, ev.Tokens)
}

func (t *tally) action(ev *trace.Event, a *loop.Action) {
	switch a.Kind {
	case loop.StartRollout:
		if t.groups[a.Group] == nil {
			t.groups[a.Group] = &liveGroup{}
		}
	case loop.GroupQueued, loop.GroupHeld:
		t.arrivals.add(ev.Time)
		t.groupReady(a.Group)
	case loop.GroupEnded:
		if a.End == loop.EndFiltered {
			t.now.filtered++
			t.groupReady(a.Group)
		}
		if a.End == loop.EndEvicted || a.End == loop.EndDiscarded {
			t.dropped++
		}
		t.lengths.gone(a.Group, a.End)
		delete(t.groups, a.Group)
	case loop.GroupTrained:
		t.lengths.gone(a.Group, loop.EndTrained)
		delete(t.groups, a.Group)
	}
}

// groupReady counts a group whose last rollout is scored, once.
func (t *tally) groupReady(id loop.GroupID) {
	g := t.groups[id]
	if g == nil || g.scored == 0 {
		return
	}
	t.now.ready++
	t.now.longestNS += g.longestNS
	t.now.longestTokens += int64(g.longestTokens)
	g.scored = 0
}

// endStep ends a row, and halves their number when there are too many.
func (t *tally) endStep() {
	if t.inRow++; t.inRow < t.steps {
		return
	}
	t.rows = append(t.rows, t.now)
	t.now, t.inRow = row{timeNS: t.now.timeNS}, 0
	if len(t.rows) < rowsMax {
		return
	}
	for i := range len(t.rows) / 2 {
		t.rows[i] = t.rows[2*i].plus(&t.rows[2*i+1])
	}
	t.rows = t.rows[:len(t.rows)/2]
	t.steps *= 2
}

func (r row) plus(o *row) row {
	share := 0.5
	if !r.learned || !o.learned {
		share = 1 // the other is 0
	}
	return row{timeNS: o.timeNS, scored: r.scored + o.scored, tokens: r.tokens + o.tokens, durationNS: r.durationNS + o.durationNS,
		solved: r.solved + o.solved, ready: r.ready + o.ready, longestNS: r.longestNS + o.longestNS, longestTokens: r.longestTokens + o.longestTokens,
		filtered: r.filtered + o.filtered, failed: r.failed + o.failed, learned: r.learned || o.learned,
		clip: share * (r.clip + o.clip), logRatio: share * (r.logRatio + o.logRatio), ess: share * (r.ess + o.ess)}
}

// windowOf are the rows after a train step.
func (t *tally) windowOf(step loop.Version) []row {
	return t.rows[min(int(int64(step)/t.steps), len(t.rows)):]
}

// binsMax is how finely arrivals are kept in time.
const binsMax = 1 << 14

// arrivals counts ready groups in equal bins of time, which double in width when they
// would be too many.
type arrivals struct {
	widthNS int64
	bins    []int32
}

func (a *arrivals) add(at int64) {
	a.widthNS = cmp.Or(a.widthNS, 1e5)
	for at/a.widthNS >= binsMax {
		for i := range len(a.bins) / 2 {
			a.bins[i] = a.bins[2*i] + a.bins[2*i+1]
		}
		if n := len(a.bins); n%2 == 1 {
			a.bins[n/2] = a.bins[n-1]
			a.bins = a.bins[:n/2+1]
		} else {
			a.bins = a.bins[:n/2]
		}
		a.widthNS *= 2
	}
	for int64(len(a.bins)) <= at/a.widthNS {
		a.bins = append(a.bins, 0)
	}
	a.bins[at/a.widthNS]++
}

// variation is c: the root of the index of dispersion of the groups that become ready in
// a time as long as spanNS, after from. NaN where there are too few such times.
func (a *arrivals) variation(from, spanNS int64) float64 {
	if a.widthNS == 0 || spanNS < a.widthNS {
		return math.NaN()
	}
	each := int((spanNS + a.widthNS/2) / a.widthNS)
	var n, sum, squares float64
	for i := int(from/a.widthNS) + 1; i+each < len(a.bins); i += each {
		count := 0.0
		for _, c := range a.bins[i : i+each] {
			count += float64(c)
		}
		n, sum, squares = n+1, sum+count, squares+count*count
	}
	if n < 20 || sum == 0 {
		return math.NaN()
	}
	mean := sum / n
	return math.Sqrt(max(squares/n-mean*mean, 0) * n / (n - 1) / mean)
}

// lengthGroups is how many groups are kept whole, to know the distribution of lengths by.
const lengthGroups = 4096

// lengthSample keeps the lengths of whole groups: the newest that ended whole.
type lengthSample struct {
	open map[loop.GroupID][]int
	kept [][]int
	next int
}

func (s *lengthSample) add(id loop.GroupID, tokens int32) {
	if s.open == nil {
		s.open = map[loop.GroupID][]int{}
	}
	s.open[id] = append(s.open[id], int(max(tokens, 1)))
}

func (s *lengthSample) gone(id loop.GroupID, end loop.End) {
	lengths := s.open[id]
	delete(s.open, id)
	if len(lengths) == 0 || end == loop.EndFailed || end == loop.EndCancelled || end == loop.EndPruned {
		return
	}
	if len(s.kept) < lengthGroups {
		s.kept = append(s.kept, lengths)
		return
	}
	s.kept[s.next] = lengths
	s.next = (s.next + 1) % lengthGroups
}
