package player

import (
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/verifier"
	"github.com/headway-rl/headway/observe/report"
)

// tasksWarned bounds how many warnings of a task set are said at a start.
const tasksWarned = 20

// sayTasks tells the operator how many tasks there are, what is odd about them, and which of their wants this run does
// not give them.
func (s *Player) sayTasks() {
	set := s.tasks
	s.logf("%s: %s to train on, %d held out", s.cfg.Environment.Tasks.File, report.Counted(set.Len(), "task"), set.HeldOutLen())
	for _, unmet := range parts.UnmetWants(set, s.cfg) {
		s.logf("%s: they are played without it", unmet)
	}
	warnings := set.Warnings()
	for _, warning := range warnings[:min(len(warnings), tasksWarned)] {
		s.logf("%s", warning)
	}
	if more := len(warnings) - tasksWarned; more > 0 {
		s.logf("and %s more of the tasks, which headway doctor lists", report.Counted(more, "warning"))
	}
}

// Status is what the players, their sandboxes and the verifier do.
func (s *Player) Status(now time.Time) *protocol.EnvironmentStatus {
	out := &protocol.EnvironmentStatus{Kind: s.cfg.Environment.Kind, Episodes: s.tally.Episodes()}
	if s.tasks != nil {
		out.Tasks = s.tasks.Len()
	}
	if players := s.players.Load(); players != nil {
		out.Episodes.Playing = players.Playing()
		out.TaskCounts = s.shown.status(s.counts, now)
		if s.Pool != nil { // which is there before the players are, as the counts are
			out.Sandboxes = s.Pool.Status()
		}
	}
	if s.verifier != nil {
		out.Verifier = verifierStatus(s.verifier.Status())
	}
	return out
}

func verifierStatus(s verifier.Status) *protocol.Verifier {
	return &protocol.Verifier{
		Kind: s.Kind, Waiting: s.Waiting, Running: s.Running, Verdicts: s.Verdicts, Retries: s.Retries, Failures: byClass(s.Failures),
		WaitS:    protocol.Quantiles{P50: s.WaitS[0], P90: s.WaitS[1], P99: s.WaitS[2]},
		VerdictS: protocol.Quantiles{P50: s.VerdictS[0], P90: s.VerdictS[1], P99: s.VerdictS[2]},
	}
}

// byClass has counts under the names of their classes.
func byClass(counts map[sandbox.Class]int64) map[string]int64 {
	if len(counts) == 0 {
		return nil
	}
	named := make(map[string]int64, len(counts))
	for class, n := range counts {
		named[string(class)] = n
	}
	return named
}
