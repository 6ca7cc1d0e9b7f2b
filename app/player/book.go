package player

import (
	"sync"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/env/episode/player"
	"github.com/headway-rl/headway/env/taskset"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/internal/replace"
)

// bookFile counts in a run's directory what became of the attempts at each task. It is earlierBookFile
// in the directory of an earlier version.
const (
	bookFile        = "task_counts.log"
	earlierBookFile = "tasks.book"
)

// openBook opens the counts of the tasks, and what chooses among them.
func (s *Player) openBook(dir string) (err error) {
	if s.tasks == nil {
		return nil
	}
	path, err := replace.Renamed(dir, earlierBookFile, bookFile)
	if err == nil {
		s.book, err = taskset.OpenBook(path)
	}
	if err != nil {
		return failure.Run("remove the file if its counts may be lost: tasks are then played as if for the first time", "%w", err)
	}
	t := s.cfg.Environment.Tasks
	s.feed, err = taskset.NewFeed(s.tasks, s.book, taskset.Rule{ScoredMin: int64(t.SettledAfter), Share: t.SettledShare}, s.cfg.Seed)
	return err
}

// ended counts an attempt at its task.
func (s *Player) ended(a player.Attempt) {
	if s.book == nil {
		return
	}
	r := taskset.Result{Task: a.Task.ID, Level: a.Task.Level, Failed: a.Record.Reward == nil, Version: a.Version, Time: s.now()}
	if !r.Failed {
		r.Reward, r.Solved = *a.Record.Reward, a.Exact
	}
	if err := s.book.Record(r); err != nil {
		s.bookTrouble.Do(func() { s.say("%s: %v; counts of tasks are missing from here on", bookFile, err) })
	}
}

const (
	// tasksShown is how many of the hardest and of the easiest tasks a status has, tasksScoredMin how often they
	// were judged at least.
	tasksShown     = 10
	tasksScoredMin = 4
	// bookFresh is how long what a status says of a book of bookLarge tasks holds: all of them are sorted for it.
	bookFresh = 2 * time.Second
	bookLarge = 4096
)

// bookCounts are what a status says of a book, made anew from time to time.
type bookCounts struct {
	mu   sync.Mutex
	made time.Time
	last *protocol.TaskBook
}

// status is what is known of the tasks, nil without a book.
func (c *bookCounts) status(book *taskset.Book, now time.Time) *protocol.TaskBook {
	if book == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last == nil || book.Len() < bookLarge || now.Sub(c.made) > bookFresh {
		c.last = &protocol.TaskBook{
			Played: book.Len(), Levels: taskCounts(book.Levels()),
			Hardest: taskCounts(book.Hardest(tasksShown, tasksScoredMin)), Easiest: taskCounts(book.Easiest(tasksShown, tasksScoredMin)),
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
