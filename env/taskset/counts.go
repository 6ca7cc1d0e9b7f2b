package taskset

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"time"
)

// Result is what became of one attempt at a rollout of a task.
type Result struct {
	// Task is its id, Level its difficulty.
	Task  string
	Level int
	// Failed: there is no reward, by a failure that is not the policy's. Solved: it is wholly right.
	Failed, Solved bool
	// Reward of an attempt that did not fail, finite and at most RewardMax in size.
	Reward float64
	// Version is the newest policy version that took part, Time when it ended.
	Version int64
	Time    time.Time
}

// RewardMax bounds the size of a reward that can be counted.
const RewardMax = 1e9

// Count is what is known of a task.
type Count struct {
	Task  string `json:"task"`
	Level int    `json:"level,omitempty"`
	// Attempts are all, Failed those without a reward and Solved those that were wholly right.
	Attempts int64 `json:"attempts"`
	Failed   int64 `json:"failed"`
	Solved   int64 `json:"solved"`
	// RewardMean is over the attempts that have one, 0 without.
	RewardMean float64 `json:"reward_mean"`
	// Version is the newest policy version of any attempt, LastMS when the last of them ended, in
	// milliseconds since 1970.
	Version int64 `json:"version"`
	LastMS  int64 `json:"last_ms"`
}

// Scored is the number of attempts with a reward.
func (c Count) Scored() int64 { return c.Attempts - c.Failed }

// SolveRate is the share of scored attempts that were wholly right, 0 without any.
func (c Count) SolveRate() float64 {
	if c.Scored() == 0 {
		return 0
	}
	return float64(c.Solved) / float64(c.Scored())
}

// tally is a Count as it is kept: every member is a sum or a maximum of whole numbers, so that the
// order in which results arrive changes nothing.
type tally struct {
	level                    int
	attempts, failed, solved int64
	// whole and parts are the sum of rewards: parts are of 2^-32 and never below 0.
	whole, parts    int64
	version, lastMS int64
}

const parts = 1 << 32

func (t *tally) add(r *Result) {
	t.attempts++
	t.level, t.version, t.lastMS = max(t.level, r.Level), max(t.version, r.Version), max(t.lastMS, r.Time.UnixMilli())
	if r.Failed {
		t.failed++
		return
	}
	whole := math.Floor(r.Reward)
	t.whole += int64(whole)
	t.parts += int64(math.Round((r.Reward - whole) * parts))
	if r.Solved {
		t.solved++
	}
}

func (t *tally) merge(o *tally) {
	t.attempts, t.failed, t.solved = t.attempts+o.attempts, t.failed+o.failed, t.solved+o.solved
	t.whole, t.parts = t.whole+o.whole, t.parts+o.parts
	t.version, t.lastMS = max(t.version, o.version), max(t.lastMS, o.lastMS)
}

func (t *tally) count(task string) Count {
	c := Count{Task: task, Level: t.level, Attempts: t.attempts, Failed: t.failed, Solved: t.solved, Version: t.version, LastMS: t.lastMS}
	if n := c.Scored(); n > 0 {
		c.RewardMean = (float64(t.whole) + float64(t.parts)/parts) / float64(n)
	}
	return c
}

// Counts holds the outcomes of each task of a run. Its file survives the run's process: a record made
// before a kill is there after it. One process has it at a time, which the run's own lock sees to. It
// is safe for concurrent use.
type Counts struct {
	mu      sync.Mutex
	path    string
	file    *os.File
	tallies map[string]*tally
	// pins are what a Chooser gave to groups, by the group's number.
	pins map[int64]int64
	// lines of the file, and whether the last write failed, so that its end is unknown.
	lines  int
	broken bool
	// end is where the file ended after the last line that was read or written here, torn how many pieces of lines it has.
	end  int64
	torn int
}

// Torn is how many lines of the file were passed over when it was opened. Each is a piece: another process of the run, which was
// deposed, ended within its write, or its machine did.
func (b *Counts) Torn() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.torn
}

// Record counts a result. An error says that it is counted in memory and not yet in the file; the
// next call tries again. A result that is none is an error and is not counted.
func (b *Counts) Record(r Result) error {
	switch {
	case r.Task == "" || len(r.Task) > idMax:
		return fmt.Errorf("taskset: a result of the task %.80q: want an id of 1 to %d bytes", r.Task, idMax)
	case !r.Failed && !(math.Abs(r.Reward) <= RewardMax):
		return fmt.Errorf("taskset: the reward of task %.80q is %g: want a number of at most %g in size", r.Task, r.Reward, RewardMax)
	case r.Failed && r.Solved:
		return fmt.Errorf("taskset: the result of task %.80q is both failed and solved", r.Task)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.tallies[r.Task]
	if t == nil {
		t = &tally{}
		b.tallies[r.Task] = t
	}
	t.add(&r)
	return b.append(tallyLine(r.Task, t))
}

// Len is the number of tasks that were played.
func (b *Counts) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.tallies)
}

// Levels returns the sums over the tasks of every level that was played, the lowest first; Task is empty.
func (b *Counts) Levels() []Count {
	b.mu.Lock()
	defer b.mu.Unlock()
	sums := map[int]*tally{}
	for _, t := range b.tallies {
		if sums[t.level] == nil {
			sums[t.level] = &tally{level: t.level}
		}
		sums[t.level].merge(t)
	}
	var counts []Count
	for _, t := range sums {
		counts = append(counts, t.count(""))
	}
	slices.SortFunc(counts, func(a, b Count) int { return cmp.Compare(a.Level, b.Level) })
	return counts
}

// Hardest returns the n tasks with the lowest solve rates, of those with at least so many scored
// attempts. Of equal rates the lower mean reward, then the id comes first.
func (b *Counts) Hardest(n int, scoredMin int64) []Count { return b.extreme(n, scoredMin, 1) }

// Easiest is Hardest from the other end.
func (b *Counts) Easiest(n int, scoredMin int64) []Count { return b.extreme(n, scoredMin, -1) }

func (b *Counts) extreme(n int, scoredMin int64, sign int) []Count {
	b.mu.Lock()
	var counts []Count
	for task, t := range b.tallies {
		if t.attempts-t.failed >= max(scoredMin, 1) {
			counts = append(counts, t.count(task))
		}
	}
	b.mu.Unlock()
	slices.SortFunc(counts, func(x, y Count) int {
		return cmp.Or(sign*cmp.Compare(x.SolveRate(), y.SolveRate()), sign*cmp.Compare(x.RewardMean, y.RewardMean), cmp.Compare(x.Task, y.Task))
	})
	return counts[:min(n, len(counts))]
}
