package sim

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/headway-rl/headway/loop"
)

// ErrStalled is wrapped by the error of a simulation in which train steps have ceased.
var ErrStalled = errors.New("the simulated run has stalled")

// ErrEnded is wrapped by the error of a simulation that ended before its train steps
// were done: the last attempt of one failed.
var ErrEnded = errors.New("the simulated run has ended early")

// ending counts the groups that ended in one way since the last train step.
type ending struct {
	end    loop.End
	reason loop.Reason
	groups int64
}

// groupEnded counts a group. There are few ways to end, so that a search is quick.
func (r *runner) groupEnded(a *loop.Action) {
	for i := range r.ended {
		if e := &r.ended[i]; e.end == a.End && e.reason == a.Reason {
			e.groups++
			return
		}
	}
	r.ended = append(r.ended, ending{a.End, a.Reason, 1})
}

// stalled is the error of a run that trains no more: what became of the groups, and
// what to do about it.
func (r *runner) stalled(nothingLeft bool) error {
	st := r.l.Status()
	var b strings.Builder
	total := int64(0)
	for _, e := range r.ended {
		total += e.groups
	}
	switch {
	case total == 0:
		b.WriteString("no group has ended since the last train step")
	case len(r.ended) == 1:
		e := r.ended[0]
		fmt.Fprintf(&b, "%s since the last train step, all %s", groupsEnded(total), e)
	default:
		fmt.Fprintf(&b, "%s since the last train step: ", groupsEnded(total))
		for i, e := range r.ended {
			if i > 0 {
				b.WriteString(", ")
			}
			fmt.Fprintf(&b, "%s %s", thousands(e.groups), e)
		}
	}
	if advice := r.advice(total); advice != "" {
		b.WriteString(": " + advice)
	}
	what := "rollouts go on, and no batch fills"
	if nothingLeft {
		what = "nothing is left to happen"
	}
	fmt.Fprintf(&b, "; %s: %s of the %s groups of a batch are ready, the queue holds at most %s, %s live", what,
		thousands(int64(st.QueueGroups)), thousands(int64(r.cfg.Loop.BatchGroups)), thousands(int64(st.QueueCapacityGroups)), groups(int64(st.LiveGroups)))
	b.WriteString(r.waiting())
	return fmt.Errorf("sim: %w after %d of %d train steps: %s", ErrStalled, st.Version, r.cfg.Loop.TrainSteps, b.String())
}

// waiting says what agents and engines wait for, "" where it is nothing of theirs.
func (r *runner) waiting() string {
	var b strings.Builder
	if r.faults.down > 0 {
		fmt.Fprintf(&b, ", %d of %d engines lost", r.faults.down, len(r.engines))
	}
	if r.agents == nil {
		return b.String()
	}
	var in [failed + 1]int64
	for i := range r.slots {
		if a := r.slots[i].agent; a != nil {
			in[a.state]++
		}
	}
	for _, wait := range []struct {
		n    int64
		what string
	}{{in[waitsSandbox], "a sandbox"}, {in[waitsStart], "their sandbox to start"}, {in[waitsTool], "a tool"}, {in[waitsVerifier], "a verifier"}, {in[waitsScorer], "a scorer"}, {in[waitsPrefill], "their prefill"}} {
		if wait.n > 0 {
			fmt.Fprintf(&b, ", %s rollouts wait for %s", thousands(wait.n), wait.what)
		}
	}
	return b.String()
}

// advice explains the most frequent end that no batch can come of.
func (r *runner) advice(total int64) string {
	var most ending
	for _, e := range r.ended {
		if e.groups > most.groups {
			most = e
		}
	}
	which := "most groups'"
	if most.groups == total {
		which = "every group's"
	}
	c := &r.cfg.Loop
	switch most.reason {
	case loop.ReasonSolveRate:
		return fmt.Sprintf("%s solve rate is outside [%g, %g]: widen the band, or play prompts of another difficulty", which, c.SolveLow, c.SolveHigh)
	case loop.ReasonZeroAdvantage:
		return which + " rewards are all equal: play easier or harder prompts, or do not filter them"
	case loop.ReasonRejected:
		return which + " verdict rejects it: check the filter"
	case loop.ReasonStale:
		return fmt.Sprintf("%s staleness exceeds the budget of %d: raise queue.max_staleness, or keep fewer groups in flight", which, c.MaxStaleness)
	case loop.ReasonFull:
		return "the queue drops them before a batch is full: raise queue.factor"
	case loop.ReasonPruned:
		return fmt.Sprintf("%s rollouts exceed %d tokens: raise rollout.prune.tokens", which, r.cfg.PruneTokens)
	case loop.ReasonEnvironment:
		return "tools or sandboxes fail too often: lower modelled.tools.failure_rate or modelled.sandbox.failure_rate, or raise retries or failures.max_attempts"
	case loop.ReasonTimeout:
		return "sandboxes take too long to start: raise modelled.sandbox.start_timeout_s or start_concurrency, or keep fewer rollouts in flight"
	case loop.ReasonEngine:
		return "engines are lost before their rollouts end: raise modelled.failures.engine_mtbf_s or failures.max_attempts"
	case loop.ReasonSurplus:
		return "others were ready before them: lower rollout.oversample"
	}
	return ""
}

func (e ending) String() string {
	if e.reason == loop.ReasonNone || e.reason.String() == e.end.String() {
		return e.end.String()
	}
	return fmt.Sprintf("%s (%s)", e.end, e.reason)
}

func groups(n int64) string {
	if n == 1 {
		return "1 group is"
	}
	return thousands(n) + " groups are"
}

func groupsEnded(n int64) string {
	if n == 1 {
		return "1 group ended"
	}
	return thousands(n) + " groups ended"
}

// thousands writes a count with separators: 1,200.
func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// endedEarly is the error of a run that the loop finished before its time.
func (r *runner) endedEarly(why loop.Reason) error {
	return fmt.Errorf("sim: %w after %d of %d train steps: the %s failed %d times in a row; lower modelled.train.failure_rate, or raise failures.train_attempts",
		ErrEnded, r.l.Version(), r.cfg.Loop.TrainSteps, why, r.cfg.Loop.TrainAttempts)
}
