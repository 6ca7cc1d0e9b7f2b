package checker

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// fold reads the log's text and takes its events in their order, each with the actions that follow from it.
func fold(c *check, text []byte) *ledger {
	l := &ledger{c: c, attempts: map[attemptID]*attempt{}, newest: map[attemptID]*attempt{}, groups: map[int64]*group{}, leases: map[int64]*lease{}, slots: map[int64]*attempt{}, steps: map[[2]int64]int64{}, times: []int64{0}, versions: []made{{}}, trainedAt: []int64{0}, unwanted: map[int64]bool{},
		cells: cells{names: map[int]string{}, newest: map[string]origin{}, begun: map[string]origin{}, engines: map[int64]*cellEngine{}}}
	var err error
	if l.entries, err = parse(text); err != nil {
		c.fail(RuleLog, -1, "%v", err)
	}
	if len(l.entries) == 0 || l.entries[0].kind != "header" {
		c.fail(RuleLog, -1, "the log does not begin with a header")
		return l
	}
	l.header(l.entries[0].data)
	next, time := int64(1), int64(0)
	events, actions := make([]int32, 0, len(l.entries)), make([]int32, 0, len(l.entries))
	for i := range l.entries {
		e := &l.entries[i]
		switch {
		case e.note:
			switch e.kind {
			case "end":
				l.endNote(e.data)
			case "discarded":
				l.unwanted[e.n] = true
			}
		case e.action:
			actions = append(actions, int32(i))
			if e.n >= next {
				c.fail(RuleLog, -1, "line %d is an action of event %d, which has not come", e.line, e.n)
			}
		default:
			if e.n != next {
				c.fail(RuleLog, -1, "line %d is event %d, and %d is the next", e.line, e.n, next)
			}
			if e.t < time {
				c.fail(RuleLog, -1, "line %d is of time %d, and the event before of %d", e.line, e.t, time)
			}
			next, time = e.n+1, e.t
			events = append(events, int32(i))
			l.times = append(l.times, e.t)
		}
	}
	l.last = next - 1
	slices.SortStableFunc(actions, func(a, b int32) int { return int(l.entries[a].n - l.entries[b].n) })
	at := 0
	for _, i := range events {
		e := &l.entries[i]
		if l.event(e); e.kind == "sync-failed" {
			l.gaveUp(e, actions[at:])
		}
		for at < len(actions) && l.entries[actions[at]].n <= e.n {
			l.action(&l.entries[actions[at]])
			at++
		}
	}
	l.finish()
	return l
}

func (l *ledger) fail(rule string, e *entry, format string, args ...any) {
	l.c.fail(rule, -1, "log line %d (event %d, %s): "+format, append([]any{e.line, e.n, e.kind}, args...)...)
}

func (l *ledger) header(data []byte) {
	var h struct {
		Loop   rules  `json:"loop"`
		Config string `json:"config"`
	}
	if err := json.Unmarshal(data, &h); err != nil {
		l.c.fail(RuleLog, -1, "the header: %v", err)
	}
	l.rules = h.Loop
	setting := func(name string) string {
		_, after, _ := strings.Cut(h.Config, "\n  "+name+": ")
		value, _, _ := strings.Cut(after, "\n")
		return value
	}
	l.rules.claimS, _ = strconv.ParseFloat(setting("claim_s"), 64)
	l.rules.leaseS, _ = strconv.ParseFloat(setting("lease_s"), 64)
	l.rules.writerS, _ = strconv.ParseFloat(setting("  writer_s"), 64)
	l.rules.responseMax, _ = strconv.Atoi(setting("response_tokens_max"))
	l.rules.normalizeStd = setting("normalize_std") == "true"
	l.rules.played = strings.Contains(h.Config, "\n  kind: tasks\n") || strings.Contains(h.Config, "\n  kind: openenv\n")
	l.rules.durability = setting("durability")
}

func (l *ledger) endNote(data []byte) {
	var note struct {
		Status struct {
			Ledger *sums `json:"ledger"`
		} `json:"status"`
	}
	if err := json.Unmarshal(data, &note); err != nil {
		l.c.fail(RuleLog, -1, "the note at the end: %v", err)
	}
	l.end = note.Status.Ledger
}

func (l *ledger) group(id int64) *group {
	g := l.groups[id]
	if g == nil {
		g = &group{id: id}
		l.groups[id] = g
		l.live++
	}
	return g
}

func (e *entry) attemptID() attemptID {
	return attemptID{e.group, int32(e.sample), int32(e.attempt)}
}

// in returns the attempt that an event is of, if it runs in the slot that the event names. An event of one that was
// aborted frees the slot.
func (l *ledger) in(e *entry, completes bool) *attempt {
	a := l.attempts[e.attemptID()]
	if a == nil || l.slots[e.slot] != a {
		return nil
	}
	if a.state != running {
		if completes {
			delete(l.slots, e.slot)
		}
		return nil
	}
	if completes {
		delete(l.slots, e.slot)
	}
	return a
}

func (l *ledger) ends(a *attempt, e *entry, state, reason string) {
	if !a.inFlight() {
		l.fail(RuleEndedOnce, e, "attempt %v ends as %s, and has ended as %s", a.id, state, a.state)
		return
	}
	a.state, a.reason, a.ended, a.t = state, reason, e.n, e.t
	l.sums.InFlight--
	switch state {
	case scored:
		l.sums.Waiting++
	case failed:
		l.sums.Failed++
	case pruned:
		l.sums.Pruned++
	case cancelled:
		l.sums.Cancelled++
	}
}

func (l *ledger) event(e *entry) {
	l.cellEvent(e)
	switch e.kind {
	case "rollout-scored":
		l.scored(e)
	case "rollout-failed":
		if a := l.in(e, true); a != nil {
			l.ends(a, e, failed, e.reason)
		}
	case "rollout-aborted":
		if a := l.in(e, true); a != nil {
			l.ends(a, e, failed, "engine")
		}
	case "rollout-interrupted":
		if a := l.in(e, true); a != nil {
			a.state = parked
		}
	case "engine-lost":
		l.loseEngine(e)
	case "recovered":
		l.recover(e)
	case "train-step-ended":
		l.stepEnded(e)
	case "train-step-failed", "lease-returned":
		l.gaveBack(e)
	case "trainer-restored":
		l.addVersion(e, 0)
		l.restored = append(l.restored, e.version)
		if l.out != nil {
			l.out.returned = append(l.out.returned, giveBack{e.n, e.t, l.out.attempt, e.kind, ""})
			l.out.out, l.out = false, nil
		}
	}
}

func (l *ledger) scored(e *entry) {
	a := l.in(e, true)
	if a == nil {
		return
	}
	switch {
	case e.mark == "pruned":
		l.ends(a, e, pruned, "")
	case e.noReward:
		l.ends(a, e, failed, "environment")
	case l.unwanted[e.n] && l.group(e.group).scored == l.rules.GroupSize: // a recovery has lost the line that aborted it
		l.ends(a, e, cancelled, "")
	default:
		l.ends(a, e, scored, "")
		a.reward, a.tokens, a.versionTokens = e.reward, e.tokens, e.versionTokens
		g := l.group(e.group)
		g.scored++
		g.complete = int64(len(l.versions) - 1)
	}
}

// recover takes that a plane has begun again: what it played itself has ended, or stands interrupted.
func (l *ledger) recover(e *entry) {
	l.recovered = append(l.recovered, e.n)
	maps.DeleteFunc(l.slots, func(_ int64, a *attempt) bool { return l.rules.cellOf(a.engine) == 0 })
	for _, a := range l.newest {
		switch {
		case !a.inFlight() || l.rules.cellOf(a.engine) != 0:
		case l.rules.ResumeRestart:
			a.state, a.left = parked, true
		default:
			l.ends(a, e, failed, "restart")
		}
	}
	if l.out != nil {
		l.out.returned = append(l.out.returned, giveBack{e.n, e.t, l.out.attempt, e.kind, ""})
	}
}

func (l *ledger) stepEnded(e *entry) {
	l.addVersion(e, e.lease)
	w := l.leases[e.lease]
	switch {
	case w == nil:
		l.fail(RuleTrainedOnce, e, "version %d is of lease %d, which was never out", e.version, e.lease)
		return
	case w.trained != 0:
		l.fail(RuleTrainedOnce, e, "lease %d was trained by event %d before", e.lease, w.trained)
		return
	case !w.out:
		l.fail(RuleTrainedOnce, e, "version %d is of lease %d, which had gone back", e.version, e.lease)
	case w.version+1 != e.version:
		l.fail(RuleVersionOrder, e, "version %d is of lease %d, which is to be trained from version %d", e.version, e.lease, w.version)
	}
	w.trained, w.out = e.n, false
	if l.out == w {
		l.out = nil
	}
	for _, id := range w.groups {
		g := l.group(id)
		if g.trained != 0 || g.ended {
			l.fail(RuleTrainedOnce, e, "group %d is trained with lease %d, and was by event %d before, or had ended as %q", id, e.lease, g.trained, g.endedAs)
			continue
		}
		g.trained = e.n
		l.live--
		l.sums.Trained += int64(g.scored)
		l.trainOrder = append(l.trainOrder, trainedGroup{id, e.n, w.version, g.start})
	}
	if len(l.trainedAt) > 0 {
		l.trainedAt[len(l.trainedAt)-1] = l.sums.Trained
	}
}

func (l *ledger) addVersion(e *entry, lease int64) {
	if int(e.version) != len(l.versions) {
		l.fail(RuleVersionOrder, e, "version %d comes after version %d", e.version, len(l.versions)-1)
	}
	l.versions = append(l.versions, made{e.n, lease})
	l.trainedAt = append(l.trainedAt, l.sums.Trained)
}

func (l *ledger) gaveBack(e *entry) {
	w := l.leases[e.lease]
	if w == nil || !w.out || w.attempt != e.attempt {
		return // it came late
	}
	w.returned = append(w.returned, giveBack{e.n, e.t, e.attempt, e.kind, e.reason})
	w.out, l.out = false, nil
}

func (l *ledger) action(e *entry) {
	switch e.kind {
	case "start-rollout":
		l.start(e)
	case "resume-rollout":
		a := l.attempts[e.attemptID()]
		if a == nil || a.state != parked {
			l.fail(RuleEndedOnce, e, "%v is resumed, and is not interrupted", e.attemptID())
			return
		}
		a.state, a.left, a.engine, a.given = running, false, e.engine, e.n
		l.take(e, a)
	case "interrupt-rollout":
		if a := l.attempts[e.attemptID()]; e.slot < 0 && (a == nil || a.state != parked || l.rules.cellOf(a.engine) != l.rules.cellOf(e.engine)) {
			l.fail(RuleCell, e, "%v is said to stand interrupted for another process, and does not", e.attemptID())
		}
	case "abort-rollout":
		if a := l.attempts[e.attemptID()]; a != nil {
			state := failed
			if e.reason == "" {
				state = cancelled
			}
			l.ends(a, e, state, e.reason)
		}
	case "group-leased":
		l.groupLeased(e)
	case "load-weights", "switch-weights":
		l.cellAction(e)
	case "finish-run":
		l.finished = e.n
	case "start-train-step":
		l.stepStarted(e)
	case "group-ended":
		g := l.group(e.group)
		if g.ended || g.trained != 0 {
			l.fail(RuleEndedOnce, e, "group %d ends as %q, and has ended before", e.group, e.end)
			return
		}
		g.ended, g.endedAs = true, e.end
		l.live--
		l.groupEnded(g, e)
	case "group-queued", "group-held":
		if g := l.group(e.group); g.ended || g.trained != 0 {
			l.fail(RuleEndedOnce, e, "group %d is ready, and has ended", e.group)
		}
	}
}

func (l *ledger) groupEnded(g *group, e *entry) {
	n := int64(g.scored)
	switch e.end {
	case "evicted":
		l.sums.Evicted += n
	case "discarded":
		l.sums.Discarded += n
	case "filtered":
		l.sums.Filtered += n
	case "pruned":
		l.sums.Pruned += n
	case "cancelled":
		l.sums.Cancelled += n
	case "failed":
		l.sums.Failed += n
	}
}

func (l *ledger) start(e *entry) {
	id := e.attemptID()
	sample := attemptID{id.group, id.sample, 0}
	was := l.newest[sample]
	first := int32(1)
	if was != nil {
		first = was.id.attempt + 1
		if was.inFlight() || was.state == scored {
			l.fail(RuleEndedOnce, e, "%v starts, and attempt %d before it is %s", id, was.id.attempt, was.state)
		}
	}
	switch {
	case id.attempt < first:
		l.fail(RuleEndedOnce, e, "%v starts, and attempt %d was before", id, first-1)
	case id.attempt > first && len(l.recovered) == 0:
		l.fail(RuleEndedOnce, e, "%v starts, and attempt %d is the next", id, first)
	case id.attempt > first: // the actions of the last events before a recovery may be missing
		l.sums.Admitted += int64(id.attempt - first)
		l.sums.Failed += int64(id.attempt - first)
	}
	if l.groups[id.group] == nil {
		l.opens(e)
	}
	g := l.group(id.group)
	if g.ended || g.trained != 0 {
		l.fail(RuleEndedOnce, e, "%v starts, and its group has ended", id)
	}
	a := &attempt{id: id, state: running, engine: e.engine, began: e.n, given: e.n, line: e.line}
	l.attempts[id], l.newest[sample] = a, a
	l.sums.Admitted++
	l.sums.InFlight++
	l.take(e, a)
}

// opens checks the admission of a group: under bounded fewer than (η + 1)·G − lag·G groups are live. The engine that
// starts its first rollout serves at least the lowest version that one serves.
func (l *ledger) opens(e *entry) {
	r := &l.rules
	if r.Policy != policyBounded || len(l.recovered) > 0 && (r.FilterZeroAdvantage || r.FilterSolveRate) {
		return // after a recovery the log may lack the notice of a group that was filtered
	}
	lag := len(l.versions) - 1 - int(e.version)
	if most := (r.Eta + 1 - lag) * r.BatchGroups; l.live >= most {
		l.fail(RuleStale, e, "group %d opens beside %d live ones, on an engine that is %d versions behind: fewer than %d may be live", e.group, l.live, lag, most)
	}
}

func (l *ledger) take(e *entry, a *attempt) {
	if other := l.slots[e.slot]; other != nil {
		l.fail(RuleEndedOnce, e, "%v is in slot %d, which %v has not left", a.id, e.slot, other.id)
	}
	a.slot = e.slot
	l.slots[e.slot] = a
}

func (l *ledger) groupLeased(e *entry) {
	g := l.group(e.group)
	if g.ended || g.trained != 0 {
		l.fail(RuleTrainedOnce, e, "group %d is leased, and has ended", e.group)
	}
	w := l.leases[e.lease]
	if w == nil {
		w = &lease{id: e.lease}
		l.leases[e.lease] = w
	}
	g.lease, g.start, g.ready = e.lease, e.start, e.ready
	if stale := int64(len(l.versions)-1) - e.start; l.rules.Policy == policyMax && stale > l.rules.MaxStaleness {
		l.fail(RuleStale, e, "group %d is leased %d versions after its start, and may be %d", e.group, stale, l.rules.MaxStaleness)
	}
	if l.rules.OnFailure == 0 && e.ready != g.complete {
		l.fail(RuleStale, e, "group %d was ready at version %d, and its last rollout was scored at version %d", e.group, e.ready, g.complete)
	}
	if !slices.Contains(w.groups, e.group) {
		if w.attempt != 0 {
			l.fail(RuleLeaseContent, e, "group %d joins lease %d, which had begun without it", e.group, e.lease)
		}
		w.groups = append(w.groups, e.group)
	}
	if r := &l.rules; r.OnFailure == 0 && g.scored != r.GroupSize || g.scored > r.GroupSize {
		l.fail(RuleBatch, e, "group %d is leased with %d scored rollouts of %d", e.group, g.scored, r.GroupSize)
	}
}

func (l *ledger) stepStarted(e *entry) {
	w := l.leases[e.lease]
	if w == nil {
		l.fail(RuleBatch, e, "lease %d begins without groups", e.lease)
		return
	}
	switch {
	case w.trained != 0:
		l.fail(RuleTrainedOnce, e, "lease %d begins, and was trained by event %d", e.lease, w.trained)
	case l.out != nil && l.out != w:
		l.fail(RuleTrainedOnce, e, "lease %d begins, and lease %d is at the trainer", e.lease, l.out.id)
	case e.attempt <= w.attempt:
		l.fail(RuleTrainedOnce, e, "attempt %d of lease %d begins after attempt %d", e.attempt, e.lease, w.attempt)
	case int(e.version) != len(l.versions)-1:
		l.fail(RuleVersionOrder, e, "lease %d begins from version %d, and %d is the newest", e.lease, e.version, len(l.versions)-1)
	case int(e.count) != len(w.groups) || len(w.groups) != l.rules.BatchGroups:
		l.fail(RuleBatch, e, "lease %d has %d groups, says %d, and is to have %d", e.lease, len(w.groups), e.count, l.rules.BatchGroups)
	}
	w.attempt, w.version, w.out = e.attempt, e.version, true
	l.steps[[2]int64{e.lease, e.attempt}] = e.n
	l.out = w
}

// finish compares the sums with those that the log ends with.
func (l *ledger) finish() {
	for _, g := range l.groups {
		n := int64(g.scored)
		if g.ended || g.trained != 0 {
			l.sums.Waiting -= n
		}
	}
	if l.end == nil {
		return
	}
	if !l.end.balanced() {
		l.c.fail(RuleLedger, -1, "the ledger at the end does not balance: %+v", *l.end)
	}
	// The log says which groups are ready only while no action is missing, so that three counters are one here.
	told, own := *l.end, l.sums
	told.Waiting += told.Queued + told.Leased
	told.Queued, told.Leased = 0, 0
	if len(l.recovered) > 0 && told.after(own) {
		return // the notices of the last events before a recovery may be missing: of groups that ended, above all
	}
	if told != own {
		l.c.fail(RuleLedger, -1, "the log has the ledger %+v, and ends with %+v", own, told)
	}
}

// time is the log's time of an event, 0 of one that it lacks.
func (l *ledger) time(n int64) int64 {
	if n < 0 || n >= int64(len(l.times)) {
		return 0
	}
	return l.times[n]
}
