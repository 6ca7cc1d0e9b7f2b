package foreign

import (
	"fmt"
	"math"
	"sort"
)

// A group's staleness parts where it became ready: pre-queue staleness runs from its oldest first token to the trainer's
// version at that moment, in-queue staleness from there to the version that it is trained from. Frameworks log the
// version of the last token instead. That is an engine's, which is behind the trainer's by the weight sync, and the
// rewards come after it: taken for the version at readiness, it counts both as time in the queue. So the moment at
// which the group became ready is looked up among the ends of the train steps.

// stepEnds are when train steps ended, ascending: the moments at which versions came to be.
type stepEnds struct {
	ended []float64 // on the rollouts' clock
	// before is the version before the first of them.
	before float64
}

// newStepEnds takes the ends of the steps; early says by how much earlier than its log row a step ended, and version
// which one it made. Without a clock, or where an entry stands for several steps, there are none.
func newStepEnds(log *Log, early func(*Step) float64, version func(*Step) float64) (stepEnds, bool) {
	if log.clockS == 0 || len(log.Series) == 0 {
		return stepEnds{}, false
	}
	ends := stepEnds{before: version(&log.Series[0]) - 1}
	for i := range log.Series {
		s := &log.Series[i]
		if !s.TimeS.Known() || s.Steps > 1 || version(s) != ends.before+1+float64(i) {
			return stepEnds{}, false
		}
		ends.ended = append(ends.ended, log.clockS+s.TimeS.Value-early(s))
	}
	return ends, sort.Float64sAreSorted(ends.ended)
}

// version is the trainer's at a moment.
func (e stepEnds) version(at float64) float64 {
	n := sort.Search(len(e.ended), func(i int) bool { return e.ended[i] > at })
	return e.before + float64(n)
}

// readyGroup is a group that was trained: versions of its tokens, the one that it was trained from, and when it was whole.
type readyGroup struct {
	oldest, newest, trained float64
	readyS                  float64
}

// readiness adds up the parts of staleness of a step's groups.
type readiness struct {
	total, before, groups float64
}

// add looks a group's readiness up. It is false where the clocks do not agree: a group is ready after its last token,
// and before it is trained on.
func (r *readiness) add(ends stepEnds, g readyGroup) bool {
	at := ends.version(g.readyS)
	r.total += g.trained - g.oldest
	r.before += math.Max(g.newest, math.Min(at, g.trained)) - g.oldest
	r.groups++
	return at >= g.newest && at <= g.trained
}

// disagreeMax is the share of groups that a step's log row, which is written a moment after the step's end, may put on the
// wrong side of it; beyond it the clocks of rollouts and steps are taken for different ones.
const disagreeMax = 0.05

const (
	readyFormula  = "mean over groups of the trainer's version when the last rollout was done (by the clock of the train steps) − their first version"
	queuedFormula = "mean over groups of the version trained from − the trainer's version when the last rollout was done (by the clock of the train steps)"
)

// put sets a step's parts, which add up to its staleness.
func (r readiness) put(step *Step) {
	step.PQS = Figure{r.before / r.groups, Inferred, readyFormula}
	step.IQS = Figure{(r.total - r.before) / r.groups, Inferred, queuedFormula}
}

// splitGiven reports whether whoever asked gave the staleness, or a part of it.
func splitGiven(log *Log) bool {
	if len(log.Series) == 0 {
		return false
	}
	s := log.Series[0]
	return s.StalenessMean.Origin == Given || s.PQS.Origin == Given || s.IQS.Origin == Given
}

// warnOfClocks says why the parts are not known although the rollouts' versions are.
func warnOfClocks(log *Log, disagreed, groups int) {
	text := "the parts of staleness (pqs, iqs) are left unknown: a group's readiness is looked up among the ends of the train steps, of which these files do not have the clock of every one"
	if groups > 0 {
		text = fmt.Sprintf("the parts of staleness (pqs, iqs) are left unknown: by their clocks %d of %d groups were ready before their last version or after they were trained on, so rollouts and steps are timed by different clocks", disagreed, groups)
	}
	log.Warnings = append(log.Warnings, Warning{Text: text, Count: 1})
}
