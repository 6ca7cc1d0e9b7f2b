package dashboard

import (
	"slices"

	"github.com/headway-rl/headway/loop"
)

// Readable is a group whose rollouts can be read.
type Readable struct {
	ID   loop.GroupID
	Step loop.Version
	// Prompt is what was asked, as text.
	Prompt string
	// Bytes is what keeping it takes, about.
	Bytes int64
	// Rollouts makes what is shown. It is called when somebody asks, by any goroutine.
	Rollouts func() []RolloutDetail
	// Tokens and Text say what there is of them.
	Tokens, Text bool
	// Line has the group's figures, for those whose events are not known; nil else.
	Line *GroupLine
	// Start and Ready are versions that go with Line.
	Start, Ready loop.Version
}

// readings are the newest groups that can be read, bounded by bytes.
type readings struct {
	all          []*Readable // in the order in which they came
	at           map[loop.GroupID]*Readable
	bytes, limit int64
}

func newReadings(limit int64) *readings {
	return &readings{at: map[loop.GroupID]*Readable{}, limit: limit}
}

func (r *readings) add(one Readable) {
	if old := r.at[one.ID]; old != nil { // trained on once more
		r.bytes += one.Bytes - old.Bytes
		*old = one
		return
	}
	r.all = append(r.all, &one)
	r.at[one.ID] = &one
	r.bytes += one.Bytes
	gone := 0
	for r.bytes > r.limit && gone < len(r.all)-1 {
		r.bytes -= r.all[gone].Bytes
		delete(r.at, r.all[gone].ID)
		gone++
	}
	r.all = slices.Delete(r.all, 0, gone)
}

// Keep keeps a group for the rollout reader. The oldest go when there is no room.
func (m *Model) Keep(one Readable) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads.add(one)
	m.opt.Info.HasTokens = m.opt.Info.HasTokens || one.Tokens
	m.opt.Info.HasText = m.opt.Info.HasText || one.Text
	m.dirty = true
}
