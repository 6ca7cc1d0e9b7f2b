package live

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/headway-rl/headway/loop"
)

// endCounts counts what ended since the last train step began or ended.
type endCounts struct {
	// rollouts that were scored, failed or aborted; groups that ended without ever being trained.
	rollouts, groups int64
	kinds            map[endKind]int64
}

// endKind is a way in which groups end untrained.
type endKind struct {
	end    loop.End
	reason loop.Reason
}

func (e *endCounts) reset() {
	e.rollouts, e.groups = 0, 0
	clear(e.kinds)
}

// group counts a group's end.
func (e *endCounts) group(a loop.Action) {
	if a.End == loop.EndTrained {
		return
	}
	if e.kinds == nil {
		e.kinds = make(map[endKind]int64)
	}
	e.groups++
	e.kinds[endKind{a.End, a.Reason}]++
}

// checkProgress returns an error once the run can no longer go on, or goes on
// without ever filling a batch.
func (r *Runtime) checkProgress() error {
	switch {
	case r.finished, r.opt.Patient:
		return nil
	case r.outstanding == 0 && len(r.inbox) == 0 && min(r.tick, r.rejoinDue(), r.plannedDue()) == loop.NoTick:
		return r.stalled("nothing is under way and nothing can start")
	case r.ends.rollouts > r.stallAfter:
		return r.stalled(fmt.Sprintf("%s ended since the last train step and no batch is full", several(r.ends.rollouts, "rollout")))
	}
	return nil
}

// stalled says in words why train steps have ceased, and what to change.
func (r *Runtime) stalled(why string) error {
	st := r.l.Status()
	words := []string{why, r.endsText()}
	words = append(words, r.blockers(st)...)
	words = append(words, fmt.Sprintf("at version %d the queue holds %s, a batch is %d; live: %s, in flight: %s, to be tried again: %d",
		st.Version, several(int64(st.QueueGroups), "group"), r.cfg.BatchGroups, several(int64(st.LiveGroups), "group"), several(st.Ledger.InFlight, "rollout"), st.Retries))
	words = slices.DeleteFunc(words, func(s string) bool { return s == "" })
	return fmt.Errorf("live: %w: %s", ErrStalled, strings.Join(words, "; "))
}

// endsText says how groups have ended since the last train step, the most
// frequent way first, with what would change it.
func (r *Runtime) endsText() string {
	if r.ends.groups == 0 {
		return ""
	}
	kinds := slices.SortedFunc(maps.Keys(r.ends.kinds), func(a, b endKind) int {
		return cmp.Or(cmp.Compare(r.ends.kinds[b], r.ends.kinds[a]), cmp.Compare(a.end, b.end), cmp.Compare(a.reason, b.reason))
	})
	var parts []string
	for _, k := range kinds {
		what, change := r.endText(k)
		number := fmt.Sprint(r.ends.kinds[k])
		if len(kinds) == 1 {
			number = "all"
		}
		parts = append(parts, fmt.Sprintf("%s %v: %s (%s)", number, k.end, what, change))
	}
	return fmt.Sprintf("%s ended untrained since the last train step, %s", several(r.ends.groups, "group"), strings.Join(parts, ", "))
}

// endText names a reason, and what to do about it.
func (r *Runtime) endText(k endKind) (what, change string) {
	switch k.reason {
	case loop.ReasonZeroAdvantage:
		return "every reward of a group was the same", "set filter.zero_advantage: false, choose a task or difficulty that the policy sometimes solves, or raise the group size"
	case loop.ReasonSolveRate:
		return fmt.Sprintf("solve rate outside [%g, %g]", r.cfg.SolveLow, r.cfg.SolveHigh), "widen filter.solve_rate, or let filter.curriculum choose the difficulty"
	case loop.ReasonRejected:
		return "a verdict of the environment rejected the group", "look at what the environment rejects"
	case loop.ReasonStale:
		return fmt.Sprintf("staler than the budget of %d", r.cfg.MaxStaleness), "raise queue.max_staleness, or sync faster and more often"
	case loop.ReasonFull:
		return "the queue was full", "the trainer takes no batch: look at its step and at the weight sync"
	case loop.ReasonPruned:
		return "every rollout was pruned", "raise rollout.prune.tokens, or set rollout.prune.check: none"
	case loop.ReasonSurplus:
		return "enough others were ready before", "lower rollout.oversample"
	case loop.ReasonEnvironment:
		return "the environment failed", "the failures are logged above with their errors"
	case loop.ReasonData:
		return "their tasks cannot be played or judged", "the failures are logged above with their errors: mend those tasks, or leave them out"
	case loop.ReasonScorer:
		return "no teacher or reference would score the rollouts", "the failures are logged above with their errors: look at the servers of scoring.servers"
	case loop.ReasonTimeout:
		return "the environment ran out of time", "raise its limit, or look at what it waits for"
	case loop.ReasonEngine, loop.ReasonSync:
		return "the engine failed", "the failures are logged above with their errors"
	case loop.ReasonSibling:
		return "another rollout of the group failed its last attempt", "go on with shrunken groups, or look at the failures above"
	}
	return k.reason.String(), "see the rules of the loop"
}

// blockers names what keeps rollouts from starting or batches from training.
func (r *Runtime) blockers(st loop.Status) (words []string) {
	lost := 0
	for _, e := range st.Engines {
		if e.State == "lost" {
			lost++
		}
	}
	if lost > 0 {
		words = append(words, fmt.Sprintf("%d of %s lost", lost, several(int64(len(st.Engines)), "engine")))
	}
	if r.cfg.PauseGroups > 0 && st.QueueGroups >= r.cfg.PauseGroups && st.QueueGroups < r.cfg.BatchGroups {
		words = append(words, fmt.Sprintf("no group opens while %d are queued, and a batch takes %d: raise the pause to at least the batch", r.cfg.PauseGroups, r.cfg.BatchGroups))
	}
	if st.Lease != 0 && !r.training {
		words = append(words, fmt.Sprintf("batch %d is leased and nobody trains on it", st.Lease))
	}
	return words
}

// several prints a number of things, which are called by the noun of one.
func several(n int64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
