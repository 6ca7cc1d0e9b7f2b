package plan

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/headway-rl/headway/loop"
)

// Measured gathers from a run's events the figures that a plan would otherwise
// take from rooflines. These are lengths by group, decode speed by slots at work,
// train speed and the time of a sync. Its zero value is not usable: see
// [MeasuredTrace].
type Measured struct {
	rules  loop.Config
	groups map[loop.GroupID][]rollout
	order  []loop.GroupID // of groups, by their first scored rollout
	cells  map[int][2]int64
	// generated tokens and the time they took in slots.
	tokens, generateNS         int64
	stepTokens, stepNS         int64
	now, stepBegan, syncBegan  int64
	training                   bool
	syncing                    loop.Version // the newest that engines were told to fetch
	syncNS, syncs              int64
	environmentNS, environment int64
}

// rollout is a scored one.
type rollout struct {
	tokens        int32
	environmentNS int64
}

// newMeasured begins one, under the rules that the run had.
func newMeasured(rules loop.Config) *Measured {
	return &Measured{rules: rules, groups: map[loop.GroupID][]rollout{}, cells: map[int][2]int64{}}
}

// event folds an event; generateNS and environmentNS split a scored rollout's time.
func (m *Measured) event(ev loop.Event, generateNS, environmentNS int64) {
	m.now = ev.Time
	switch ev.Kind {
	case loop.TrainStepEnded:
		if m.training {
			m.training, m.stepNS = false, m.stepNS+ev.Time-m.stepBegan
		}
	case loop.RolloutScored:
		if ev.Tokens < 1 {
			return
		}
		if len(m.groups[ev.Group]) == 0 {
			m.order = append(m.order, ev.Group)
		}
		m.groups[ev.Group] = append(m.groups[ev.Group], rollout{ev.Tokens, environmentNS})
		m.tokens, m.generateNS = m.tokens+int64(ev.Tokens), m.generateNS+generateNS
		m.environmentNS, m.environment = m.environmentNS+environmentNS, m.environment+1
	}
}

// action folds an action: a train step begins, a group was trained on, a sync begins with the first engine that fetches
// its version, or is complete.
func (m *Measured) action(a loop.Action) {
	switch a.Kind {
	case loop.StartTrainStep:
		m.training, m.stepBegan = true, m.now
	case loop.GroupTrained:
		for _, r := range m.groups[a.Group] {
			m.stepTokens += int64(r.tokens)
		}
	case loop.LoadWeights:
		if a.Version > m.syncing {
			m.syncing, m.syncBegan = a.Version, m.now
		}
	case loop.SyncCompleted:
		if a.Version == m.syncing {
			m.syncNS, m.syncs = m.syncNS+m.now-m.syncBegan, m.syncs+1
		}
	}
}

// decode folds decode steps of one engine with so many slots at work.
func (m *Measured) decode(active int, steps, ns int64) {
	if active < 1 || steps < 1 || ns < 1 {
		return
	}
	cell := m.cells[active]
	m.cells[active] = [2]int64{cell[0] + steps, cell[1] + ns}
}

// Sizes of what a calibration keeps.
const (
	measuredGroups = 1500 // the last ones: what the policy has become
	measuredPoints = 12
	groupsMin      = 8
)

// Keys are what was measured as KEY=VALUE of a document, and a sentence on each.
// The error says what the run was too short for.
func (m *Measured) Keys() (keys, notes []string, err error) {
	lengths, count := m.lengths()
	if count < groupsMin {
		return nil, nil, fmt.Errorf("the run has %d whole groups: a distribution of lengths needs %d", count, groupsMin)
	}
	if m.stepNS <= 0 || m.stepTokens == 0 {
		return nil, nil, errors.New("the run has no whole train step: how fast the trainer is cannot be read from it")
	}
	add := func(note string, all ...string) {
		keys, notes = append(keys, all...), append(notes, note)
	}
	add(fmt.Sprintf("lengths of the last %d whole groups of %d", count, m.rules.GroupSize),
		"modelled.length={kind: empirical, groups: "+lengths+"}", fmt.Sprintf("rollout.group_size=%d", m.rules.GroupSize))
	curve, points := m.curve()
	add(fmt.Sprintf("decode speed by %d points of slots at work on one engine", points), "modelled.decode_curve="+curve, "modelled.decode_tokens_per_s=null", "modelled.throughput_tokens_per_s=null",
		"hardware.rollout_tokens_per_s_per_gpu=null", "hardware.slots_per_gpu=null")
	speed := float64(m.stepTokens) / (float64(m.stepNS) / 1e9)
	add(fmt.Sprintf("train speed %.4g response tokens/s, taken as one GPU's", speed),
		"hardware.train_tokens_per_s_per_gpu="+plain(round6(speed)), "hardware.mfu=null", "hardware.prompt_tokens=0")
	if m.syncs > 0 {
		at := float64(m.syncNS) / float64(m.syncs) / 1e9
		add(fmt.Sprintf("a weight sync of %.3g s", at), "modelled.sync.time_s="+plain(round6(at)))
	}
	if m.environmentNS > m.generateNS/100 {
		mean := float64(m.environmentNS) / float64(max(m.environment, 1)) / 1e9
		add(fmt.Sprintf("environment time of %.3g s on average", mean), "modelled.environment={kind: fixed, mean_s: "+plain(round6(mean))+"}")
	}
	return keys, notes, nil
}

// lengths are those of the last whole groups, as a YAML list, and how many there are.
func (m *Measured) lengths() (list string, count int) {
	var whole []string
	for i := len(m.order) - 1; i >= 0 && len(whole) < measuredGroups; i-- {
		group := m.groups[m.order[i]]
		if len(group) != m.rules.GroupSize {
			continue
		}
		cells := make([]string, len(group))
		for k, r := range group {
			cells[k] = strconv.Itoa(int(r.tokens))
		}
		whole = append(whole, "["+strings.Join(cells, ", ")+"]")
	}
	slices.Reverse(whole)
	return "[" + strings.Join(whole, ", ") + "]", len(whole)
}

// curve are the speeds of a slot by slots at work, never rising: what looks so is
// noise, and is averaged out. Without decode times it is the mean speed of all
// generation, at the slots of an engine.
func (m *Measured) curve() (list string, points int) {
	type point struct {
		active    int
		steps, ns float64
	}
	var all []point
	for active, cell := range m.cells {
		all = append(all, point{active: active, steps: float64(cell[0]), ns: float64(cell[1])})
	}
	if len(all) == 0 {
		slots := 1
		if len(m.rules.EngineSlots) > 0 {
			slots = m.rules.EngineSlots[0]
		}
		all = []point{{active: slots, steps: float64(m.tokens), ns: float64(max(m.generateNS, 1))}}
	}
	slices.SortFunc(all, func(a, b point) int { return cmp.Compare(a.active, b.active) })
	var merged []point
	size := (len(all) + measuredPoints - 1) / measuredPoints
	for i := 0; i < len(all); i += size {
		p := all[min(i+size, len(all))-1]
		for _, other := range all[i:min(i+size-1, len(all)-1)] {
			if other.active != p.active {
				p.steps, p.ns = p.steps+other.steps, p.ns+other.ns
			}
		}
		merged = append(merged, p)
	}
	speeds := make([]float64, len(merged))
	for i := range merged { // pool neighbours until none is faster than the one before
		speeds[i] = 1e9 * merged[i].steps / merged[i].ns
	}
	for again := true; again; {
		again = false
		for i := 1; i < len(speeds); i++ {
			if speeds[i] > speeds[i-1]*(1+1e-9) {
				mean := (speeds[i]*merged[i].steps + speeds[i-1]*merged[i-1].steps) / (merged[i].steps + merged[i-1].steps)
				speeds[i], speeds[i-1], again = mean, mean, true
			}
		}
	}
	cells := make([]string, len(merged))
	for i, p := range merged {
		cells[i] = fmt.Sprintf("{active: %d, tokens_per_s: %s}", p.active, plain(round6(speeds[i])))
	}
	return "[" + strings.Join(cells, ", ") + "]", len(cells)
}
