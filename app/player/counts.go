package player

import (
	"sync"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/env/episode/player"
	"github.com/headway-rl/headway/env/taskset"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/internal/replace"
	"github.com/headway-rl/headway/observe/report"
)

// countsFile counts in a run's directory what became of the attempts at each task. It is earlierCountsFile
// in the directory of an earlier version.
const (
	countsFile        = "task_counts.log"
	earlierCountsFile = "tasks.book"
)

// openCounts opens the counts of the tasks, and what chooses among them.
func (s *Player) openCounts(dir string) (err error) {
	if s.tasks == nil {
		return nil
	}
	path, err := replace.Renamed(dir, earlierCountsFile, countsFile)
	if err == nil {
		s.counts, err = taskset.OpenCounts(path)
	}
	if err != nil {
		return failure.Run("remove the file if its counts may be lost: tasks are then played as if for the first time", "%w", err)
	}
	if n := s.counts.Torn(); n > 0 {
		s.logf("%s: %s of a line are passed over: another process of the run ended within a write", countsFile, report.Counted(n, "piece"))
	}
	t := s.cfg.Environment.Tasks
	s.chooser, err = taskset.NewChooser(s.tasks, s.counts, taskset.Rule{ScoredMin: int64(t.SettledAfter), Share: t.SettledShare}, s.cfg.Seed)
	return err
}

// ended counts an attempt at its task.
func (s *Player) ended(a player.Attempt) {
	if s.counts == nil || a.Evaluation {
		return
	}
	r := taskset.Result{Task: a.Task.ID, Level: a.Task.Level, Failed: a.Record.Reward == nil, Version: a.Version, Time: s.now()}
	if !r.Failed {
		r.Reward, r.Solved = *a.Record.Reward, a.Exact
	}
	if err := s.counts.Record(r); err != nil {
		s.countsTrouble.Do(func() { s.logf("%s: %v; counts of tasks are missing from here on", countsFile, err) })
	}
}

const (
	// tasksShown is how many of the hardest and of the easiest tasks a status has, tasksScoredMin how often they
	// were judged at least.
	tasksShown     = 10
	tasksScoredMin = 4
	// countsFresh is how long what a status says of countsLarge tasks holds: all of them are sorted for it.
	countsFresh = 2 * time.Second
	countsLarge = 4096
)

// countsCache has what a status says of the counts, made anew from time to time.
type countsCache struct {
	mu   sync.Mutex
	made time.Time
	last *protocol.TaskCounts
}

// status is what is known of the tasks, nil without counts.
func (c *countsCache) status(counts *taskset.Counts, now time.Time) *protocol.TaskCounts {
	if counts == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last == nil || counts.Len() < countsLarge || now.Sub(c.made) > countsFresh {
		c.last = &protocol.TaskCounts{
			Played: counts.Len(), Levels: taskCounts(counts.Levels()),
			Hardest: taskCounts(counts.Hardest(tasksShown, tasksScoredMin)), Easiest: taskCounts(counts.Easiest(tasksShown, tasksScoredMin)),
		}
		c.made = now
	}
	return c.last
}

func taskCounts(counts []taskset.Count) []protocol.TaskCount {
	said := make([]protocol.TaskCount, len(counts))
	for i, c := range counts {
		said[i] = protocol.TaskCount{Task: c.Task, Level: c.Level, Attempts: c.Attempts, Failed: c.Failed, Solved: c.Solved,
			SolveRate: c.SolveRate(), RewardMean: c.RewardMean, Version: c.Version}
	}
	return said
}
