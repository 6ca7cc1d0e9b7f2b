package session

import (
	"cmp"
	"math"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/headway-rl/headway/loop/workload"
)

// Workload is a record as rollouts that a simulation plays, and the means by which a plan reckons.
//
// A session is a rollout. Its sub-agents' calls stand among its own in the order in which they came. Calls that
// ran side by side so run one after another. A call without output generates one token.
type Workload struct {
	// Rollouts are the sessions' turns.
	Rollouts *workload.Recorded
	// PromptTokens are the mean input of a session's first call. Calls are the mean number of calls after it, and
	// ReadTokens what each of these reads that is not in the cache, in the mean.
	PromptTokens, Calls, ReadTokens float64
	// Timed reports whether the record has gaps. GapS is their mean, in seconds, and GapCV their coefficient of
	// variation.
	Timed       bool
	GapS, GapCV float64
	// Every is 1 where all sessions were taken. Of a longer record every so manyth prompt, or session, was.
	Every int
}

// loadMost bounds the turns of a workload, of 24 bytes each.
const loadMost = 1 << 20

// loaded keeps the workloads of files, which commands ask for again and again.
var loaded = struct {
	sync.Mutex
	of map[loadedFile]*Workload
}{of: map[loadedFile]*Workload{}}

// loadedFile names a file as it was.
type loadedFile struct {
	path string
	size int64
	time time.Time
}

// Load reads a record as a workload. A file that has not changed is read once.
func Load(path string) (*Workload, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	key := loadedFile{path, info.Size(), info.ModTime()}
	loaded.Lock()
	defer loaded.Unlock()
	if w, ok := loaded.of[key]; ok {
		return w, nil
	}
	r, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	w, err := NewWorkload(r)
	if err != nil {
		return nil, err
	}
	loaded.of[key] = w
	return w, nil
}

// NewWorkload reads a record to its end. It fails where the record does, and where it has no sessions.
func NewWorkload(r *Record) (*Workload, error) {
	t := taken{every: 1, most: loadMost}
	for s, err := range r.Sessions() {
		if err != nil {
			return nil, err
		}
		key := t.sessions
		if r.Grouped() {
			key = s.Group
		}
		t.sessions++
		t.take(key, &s, r.block)
	}
	return t.workload()
}

// taken are the turns of sessions by prompt. When there are too many, those of every second prompt are dropped.
type taken struct {
	sessions, every, turns, most int
	prompts                      []prompt
	at                           map[int]int // key to index in prompts
}

type prompt struct {
	key      int
	rollouts [][]workload.RecordedTurn
}

func (t *taken) take(key int, s *Session, block int) {
	if key%t.every != 0 {
		return
	}
	turns := turnsOf(s, block)
	if t.at == nil {
		t.at = map[int]int{}
	}
	i, again := t.at[key]
	if !again {
		i = len(t.prompts)
		t.at[key] = i
		t.prompts = append(t.prompts, prompt{key: key})
	}
	t.prompts[i].rollouts = append(t.prompts[i].rollouts, turns)
	for t.turns += len(turns); t.turns > t.most && len(t.prompts) > 1; {
		t.thin()
	}
}

// thin drops the prompts whose key is odd in steps of every.
func (t *taken) thin() {
	t.every *= 2
	t.prompts = slices.DeleteFunc(t.prompts, func(p prompt) bool { return p.key%t.every != 0 })
	t.turns = 0
	clear(t.at)
	for i, p := range t.prompts {
		t.at[p.key] = i
		for _, turns := range p.rollouts {
			t.turns += len(turns)
		}
	}
}

// workload compiles what was taken.
func (t *taken) workload() (*Workload, error) {
	w := &Workload{Every: t.every}
	prompts := make([][][]workload.RecordedTurn, len(t.prompts))
	rollouts, later, gaps, squares := 0.0, 0.0, 0.0, 0.0
	for i, p := range t.prompts {
		prompts[i] = p.rollouts
		for _, turns := range p.rollouts {
			rollouts++
			w.PromptTokens += float64(turns[0].ContextTokens)
			for _, turn := range turns[1:] {
				later++
				gap := float64(turn.GapNS) / 1e9
				gaps, squares = gaps+gap, squares+gap*gap
				w.ReadTokens += float64(turn.ReadTokens)
			}
		}
	}
	recorded, err := workload.NewRecorded(prompts)
	if err != nil {
		return nil, err
	}
	w.Rollouts = recorded
	w.PromptTokens /= rollouts
	w.Calls = later / rollouts
	if later > 0 {
		w.ReadTokens /= later
		w.GapS = gaps / later
	}
	if w.Timed = w.GapS > 0; w.Timed {
		w.GapCV = math.Sqrt(max(squares/later-w.GapS*w.GapS, 0)) / w.GapS
	}
	return w, nil
}

// Tailness is the tail of a lognormal with a coefficient of variation, in the words of a document: 0 to 100.
func Tailness(cv float64) float64 {
	return min(math.Sqrt(math.Log1p(cv*cv))/1.3*100, 100)
}

// placed is a call of a session or of one of its sub-agents, in seconds of the session's clock.
type placed struct {
	at, end float64
	call    *Call
	before  *Call // of the same agent
}

// turnsOf are the calls of a session and its sub-agents as turns of one rollout.
func turnsOf(s *Session, block int) []workload.RecordedTurn {
	calls := place(nil, s, 0)
	if len(s.Agents) > 0 {
		slices.SortStableFunc(calls, func(a, b placed) int { return cmp.Compare(a.at, b.at) })
	}
	turns := make([]workload.RecordedTurn, len(calls))
	cached, end := map[uint64]struct{}{}, 0.0
	for i, c := range calls {
		turn := &turns[i]
		turn.ContextTokens, turn.Tokens = int32(c.call.InputTokens), int32(max(c.call.OutputTokens, 1))
		kept := 0
		if c.before != nil {
			kept = c.call.kept(c.before, block)
		}
		if len(s.Agents) > 0 { // what another agent of the session has read
			kept = max(kept, c.call.shared(cached)*block)
		}
		turn.ReadTokens = int32(max(c.call.InputTokens-kept, 0))
		if i > 0 {
			gap := c.at - end
			if len(s.Agents) == 0 {
				gap = c.call.GapS // as it was recorded, without rounding
			}
			turn.GapNS = int64(math.Round(min(max(gap, 0), workload.MaxServiceS) * 1e9))
		}
		end = max(end, c.end)
	}
	return turns
}

// place appends the calls of a session that begins at a time, and those of its sub-agents.
func place(to []placed, s *Session, at float64) []placed {
	start := at
	var before *Call
	for i := range s.Calls {
		c := &s.Calls[i]
		at += c.GapS
		to = append(to, placed{at, at + c.TookS, c, before})
		at += c.TookS
		before = c
	}
	for i := range s.Agents {
		to = place(to, &s.Agents[i], start+s.Agents[i].StartS)
	}
	return to
}

// shared returns how many blocks at the start of a call's input were read before, and notes all of them.
func (c *Call) shared(cached map[uint64]struct{}) int {
	same, whole := 0, true
	for _, id := range c.Blocks {
		_, has := cached[id]
		if whole = whole && has; whole {
			same++
		}
		cached[id] = struct{}{}
	}
	return same
}
