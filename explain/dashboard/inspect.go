package dashboard

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/attribution"
)

// listMax bounds the groups of one answer.
const listMax = 2000

// Queue returns the groups that are ready and the open ones, oldest first.
func (m *Model) Queue() Queue {
	m.mu.Lock()
	defer m.mu.Unlock()
	q := Queue{State: m.queueState(), Ready: []QueueGroup{}, Open: []QueueGroup{}}
	for _, g := range m.groups.live {
		switch g.place {
		case placeQueued, placeHeld:
			q.Ready = append(q.Ready, m.queueGroup(g))
		case placeOpen:
			q.Open = append(q.Open, m.queueGroup(g))
		}
	}
	slices.SortFunc(q.Ready, func(a, b QueueGroup) int { return cmp.Or(-cmp.Compare(a.WaitS, b.WaitS), cmp.Compare(a.ID, b.ID)) })
	slices.SortFunc(q.Open, func(a, b QueueGroup) int { return cmp.Compare(a.ID, b.ID) })
	q.Ready, q.Open = q.Ready[:min(len(q.Ready), listMax)], q.Open[:min(len(q.Open), listMax)]
	return q
}

func (m *Model) queueGroup(g *group) QueueGroup {
	q := QueueGroup{ID: g.id, StartVersion: g.start, ReadyVersion: g.ready, AgeS: float64(m.draw.now-g.opened) / 1e9, Scored: int(g.scored), Size: int(g.size),
		StalenessNow: m.rec.Version() - g.start, Tokens: g.tokens, RewardMean: g.mean(), Held: g.place == placeHeld}
	if g.ready != loop.NoVersion {
		q.WaitS = float64(m.draw.now-g.readyAt) / 1e9
	}
	return q
}

func (g *group) mean() float64 { return g.reward / float64(max(g.scored, 1)) }

// Query says which groups are listed. The zero value lists the newest.
type Query struct {
	// From is the group to go on from: of the order, all before it are left out; 0 from the beginning.
	From loop.GroupID
	// To is the largest id, 0 for no bound.
	To loop.GroupID
	// StepFrom and StepTo bound the step that trained it, StalenessFrom and StalenessTo its staleness,
	// RewardFrom and RewardTo its mean reward; nil for no bound.
	StepFrom, StepTo           *int64
	StalenessFrom, StalenessTo *int64
	RewardFrom, RewardTo       *float64
	// Text is a part of the prompt, in any case.
	Text string
	// Sort is id, step, reward, staleness or tokens, "-" in front for descending; empty is -id.
	Sort string
	// Readable lists groups alone whose rollouts can be read.
	Readable bool
	// Limit of the answer, 0 for 100.
	Limit int
}

// Groups lists groups that have ended, and those that can be read.
func (m *Model) Groups(q Query) Groups {
	lines := m.lines(q.Readable)
	lines = slices.DeleteFunc(lines, func(l GroupLine) bool { return !q.takes(l) })
	slices.SortFunc(lines, q.compare())
	if q.From > 0 {
		if at := slices.IndexFunc(lines, func(l GroupLine) bool { return l.ID == q.From }); at > 0 {
			lines = lines[at:]
		}
	}
	limit := q.Limit
	if limit <= 0 {
		limit = 100
	}
	limit = min(limit, listMax)
	out := Groups{Groups: []GroupLine{}}
	if len(lines) > limit {
		out.Next, lines = lines[limit].ID, lines[:limit]
	}
	out.Groups = append(out.Groups, lines...)
	return out
}

// lines are the groups that have ended, and those that can be read; readable asks for these alone.
func (m *Model) lines(readable bool) (lines []GroupLine) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.reads.all {
		lines = append(lines, m.line(r.ID))
	}
	if readable {
		return lines
	}
	for i := range m.groups.ended.all {
		if id := m.groups.ended.all[i].id; m.reads.at[id] == nil {
			lines = append(lines, m.line(id))
		}
	}
	return lines
}

// takes reports whether a group is asked for.
func (q Query) takes(l GroupLine) bool {
	within := func(v int64, low, high *int64) bool { return (low == nil || v >= *low) && (high == nil || v <= *high) }
	switch {
	case q.To > 0 && l.ID > q.To:
	case !within(int64(l.Step), q.StepFrom, q.StepTo), !within(int64(l.Staleness), q.StalenessFrom, q.StalenessTo):
	case q.RewardFrom != nil && l.RewardMean < *q.RewardFrom, q.RewardTo != nil && l.RewardMean > *q.RewardTo:
	case q.Text != "" && !strings.Contains(strings.ToLower(l.Prompt), strings.ToLower(q.Text)):
	default:
		return true
	}
	return false
}

// sorts are the orders that groups may be listed in.
var sorts = map[string]func(a, b GroupLine) int{
	"id":        func(a, b GroupLine) int { return cmp.Compare(a.ID, b.ID) },
	"step":      func(a, b GroupLine) int { return cmp.Compare(a.Step, b.Step) },
	"reward":    func(a, b GroupLine) int { return cmp.Compare(a.RewardMean, b.RewardMean) },
	"staleness": func(a, b GroupLine) int { return cmp.Compare(a.Staleness, b.Staleness) },
	"tokens":    func(a, b GroupLine) int { return cmp.Compare(a.Tokens, b.Tokens) },
}

// compare is the order asked for; equals by id, the newest first.
func (q Query) compare() func(a, b GroupLine) int {
	by, descending := strings.CutPrefix(q.Sort, "-")
	if q.Sort == "" {
		by, descending = "id", true
	}
	order := sorts[by]
	return func(a, b GroupLine) int {
		c := order(a, b)
		if descending {
			c = -c
		}
		return cmp.Or(c, -cmp.Compare(a.ID, b.ID))
	}
}

// promptStart is how much of a prompt a list shows, in characters.
const promptStart = 160

// line is a group in a list; the lock is held.
func (m *Model) line(id loop.GroupID) GroupLine {
	r := m.reads.at[id]
	l := GroupLine{ID: id, Step: loop.NoVersion}
	if g := m.groups.find(id); g != nil {
		l.Step, l.End, l.Staleness, l.Tokens, l.RewardMean = g.step, g.end.String(), g.staleness, g.tokens, g.mean()
		l.RewardMin, l.RewardMax = float64(g.least), float64(g.most)
	} else if r != nil && r.Line != nil {
		l = *r.Line
	}
	if r != nil {
		l.Readable, l.Prompt = true, beginning(r.Prompt, promptStart)
		if l.Step == loop.NoVersion {
			l.Step = r.Step
		}
	}
	return l
}

// beginning cuts a text after so many characters.
func beginning(text string, characters int) string {
	for i := range text {
		if characters--; characters < 0 {
			return text[:i] + "…"
		}
	}
	return text
}

// Group returns one group whole, false if it is not known.
func (m *Model) Group(id loop.GroupID) (GroupDetail, bool) {
	d, rollouts, found := m.detail(id)
	if rollouts != nil { // it may take a while: not under the lock
		d.Rollouts = rollouts()
	}
	return d, found
}

// unknown says why nothing of a group is known.
func (m *Model) unknown(id loop.GroupID) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch first, newest := m.groups.first, m.groups.newest; {
	case m.read != nil && id > newest:
		return fmt.Sprintf("group %d has not been read yet", id)
	case id > newest || id <= 0:
		return fmt.Sprintf("group %d has not begun: the newest is %d", id, newest)
	case id < first && m.opt.Recorder != nil:
		return fmt.Sprintf("group %d ended before the run's process was started again: of such groups these pages have those in samples/ alone, of every so many train steps (store.samples_every). headway view RUN has the figures of all that are in the trace", id)
	}
	return fmt.Sprintf("group %d is older than the %d groups whose figures are kept here", id, m.opt.GroupsMax)
}

// detail is a group but for its rollouts, and what makes them; nil where they are not kept.
func (m *Model) detail(id loop.GroupID) (d GroupDetail, rollouts func() []RolloutDetail, found bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	g, r := m.groups.find(id), m.reads.at[id]
	if g == nil && r == nil {
		return d, nil, false
	}
	d = GroupDetail{GroupLine: m.line(id), StartVersion: loop.NoVersion, ReadyVersion: loop.NoVersion, Rollouts: []RolloutDetail{}}
	if g != nil {
		d.StartVersion, d.ReadyVersion = g.start, g.ready
		if g.known {
			d.Split = new(attribution.Split)
			for source, versions := range g.from {
				d.Split[source] = float64(versions)
			}
		}
	} else if r.Line != nil {
		d.StartVersion, d.ReadyVersion = r.Start, r.Ready
	}
	if r != nil {
		d.PromptText, rollouts = r.Prompt, r.Rollouts
	}
	return d, rollouts, true
}

// Tracks returns the rows of the timeline.
func (m *Model) Tracks() Tracks {
	m.mu.Lock()
	defer m.mu.Unlock()
	return Tracks{EndNS: m.draw.now, FinalNS: m.final(), Version: m.draw.rows.generation, Tracks: m.draw.tracks}
}

// final is up to where nothing is drawn any more.
func (m *Model) final() int64 {
	if m.ended {
		return 1<<53 - 1 // the largest whole number that a browser tells apart
	}
	_, earliest := m.draw.open()
	return earliest
}

// tile returns the tile of a window, encoded, and whether it can change.
func (m *Model) tile(w window) (body []byte, generation int64, final bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	open, earliest := m.draw.open()
	arrows := m.draw.arrows.within(w.from, w.to, tileFlowsMax)
	t := m.draw.rows.tile(w, open, arrows, int32(m.draw.trainTrack))
	return t.encode(), m.draw.rows.generation, m.ended || w.to <= earliest
}
