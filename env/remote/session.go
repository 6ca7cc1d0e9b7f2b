package remote

import (
	"container/list"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// state is how far a rollout that is being played has come.
type state uint8

const (
	// stateOffered waits for a worker, stateClaimed has one.
	stateOffered state = iota
	// stateRestoring had a worker before a restart, which is being read.
	stateRestoring
	stateClaimed
	// stateAccepted has its reward, stateReturned has given it to the runtime.
	stateAccepted
	stateReturned
	// stateEnded is remembered only by its outcome.
	stateEnded
)

// sampleKey names the place of a rollout, whatever its attempt.
type sampleKey struct {
	group  loop.GroupID
	sample int32
}

func keyOf(id port.RolloutID) sampleKey { return sampleKey{id.Group, id.Sample} }

// claimID names an attempt in every call of a worker. A rollout of an evaluation, whose group is below 0, begins with e.
func claimID(id port.RolloutID) string {
	if id.Group < 0 {
		return fmt.Sprintf("e%d-s%d-a%d", -id.Group, id.Sample, id.Attempt)
	}
	return fmt.Sprintf("g%d-s%d-a%d", id.Group, id.Sample, id.Attempt)
}

// parseClaimID is the inverse of claimID; false for text that it never returns.
func parseClaimID(text string) (id port.RolloutID, ok bool) {
	form, evaluation := "g%d-s%d-a%d", strings.HasPrefix(text, "e")
	if evaluation {
		form = "e%d-s%d-a%d"
	}
	n, err := fmt.Sscanf(text, form, &id.Group, &id.Sample, &id.Attempt)
	if evaluation {
		id.Group = -id.Group
	}
	return id, n == 3 && err == nil && claimID(id) == text
}

// session is one rollout attempt while it is played. The environment's mutex guards it.
type session struct {
	task port.RolloutRequest
	id   string
	// number is its place among all that were offered.
	number int64
	// place is the session's in the list of offers, nil once it is claimed.
	place *list.Element
	state state
	// worker holds the claim; calls of it are open; with none, the claim lasts until deadline.
	worker   string
	calls    int
	deadline int64
	// timer looks at the claim when it may have expired.
	timer  *time.Timer
	record record
	// pending is what it holds beside its record, in bytes; counted is its part of the sum of all.
	pending, counted int64
	// grant is the place of its claim among all claims.
	grant int64
	// kept is how much is kept of it for a process after this one; unkept: nothing is any more. untold are turns that are recorded, and
	// whose end nobody may have been told. restored is closed when it is read what was kept, nil for a rollout
	// that began in this process.
	kept   int32
	unkept bool
	untold []*turn
	// note is kept with the next turn, notes were kept with the turns of earlier processes. Since the last of these it was played
	// again agains times.
	note     json.RawMessage
	notes    []json.RawMessage
	agains   int
	restored chan struct{}
	// running is the turn that the sampler is asked for, queue those after it.
	running *turn
	queue   []*turn
	// sample and answer are what the worker finished with, err what Play returns.
	sample port.Sample
	answer answer
	err    error
	// wake, of one element, tells the goroutine that plays that something changed.
	wake chan struct{}
	// detach ends what attend began, nil before.
	detach func() bool
	// done is closed when the session has ended, by outcome.
	done    chan struct{}
	outcome outcome
}

func newSession(task port.RolloutRequest) *session {
	return &session{task: task, id: claimID(task.ID), wake: make(chan struct{}, 1), done: make(chan struct{})}
}

// offer puts a rollout at the end of the offers, or gives it to the worker that has waited longest.
// e.mu must be held.
func (e *Dispatcher) offer(task port.RolloutRequest) *session {
	s := newSession(task)
	if old := e.latest[keyOf(task.ID)]; old != nil {
		e.supersede(old, s)
	}
	e.sessions[s.id], e.latest[keyOf(task.ID)] = s, s
	e.offerSession(s)
	return s
}

// offerSession offers a rollout behind all others. e.mu must be held.
func (e *Dispatcher) offerSession(s *session) {
	e.numbers++
	s.state, s.number = stateOffered, e.numbers
	if w := e.firstWaiter(s); w != nil {
		e.hand(s, w)
		return
	}
	s.place = e.offers.PushBack(s)
}

// supersede ends an attempt that another has taken the place of.
func (e *Dispatcher) supersede(old, by *session) {
	old.err = fmt.Errorf("env/remote: %s has taken the place of %s: %w", by.id, old.id, context.Canceled)
	e.end(old, outcome{kind: outcomeUnwanted, reason: by.id + " has taken its place"})
}

// giveUp ends a session whose rollout the runtime gave up. One whose reward was
// accepted does not count, or nobody knows while the process stops; any other is unwanted,
// or is played again by the process that goes on.
func (e *Dispatcher) giveUp(s *session, err error) {
	s.err = err
	stops := e.stopping() || errors.Is(err, port.ErrEnded)
	switch {
	case s.state < stateAccepted && stops:
		e.end(s, outcome{kind: outcomeStopped})
	case s.state < stateAccepted:
		e.end(s, outcome{kind: outcomeUnwanted, reason: "the loop has given it up"})
	case stops:
		e.end(s, outcome{kind: outcomeUnlogged})
	default:
		e.end(s, outcome{kind: outcomeFinished})
	}
}

// attend frees the worker of a rollout whose sample the runtime has, should the
// runtime give it up: its context then ends, and Logged need not follow.
func (e *Dispatcher) attend(ctx context.Context, s *session) {
	s.detach = context.AfterFunc(ctx, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if s.state == stateReturned {
			e.giveUp(s, context.Cause(ctx))
		}
	})
}

// overdue reports whether the claim has lasted its time.
func (s *session) overdue(now int64) bool {
	return s.state == stateClaimed && s.calls == 0 && now >= s.deadline
}

// lookAgain is the least time between two looks at a claim.
const lookAgain = 100 * time.Millisecond

// look ends a claim that has expired, or looks again when it may have.
func (e *Dispatcher) look(s *session) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch now := e.opt.Clock(); {
	case s.overdue(now):
		e.expire(s, now)
	case s.state == stateClaimed && s.calls == 0:
		s.timer.Reset(max(time.Duration(s.deadline-now), lookAgain)) // the clock stood still meanwhile
	}
}

// expire ends a claim that no call has named for its time. Its worker may have fallen silent, or be
// busy with other claims.
func (e *Dispatcher) expire(s *session, now int64) {
	unused := (e.opt.ClaimTTL + time.Duration(now-s.deadline)).Round(time.Millisecond)
	why := "which has not called for anything else either"
	if e.workers.heard(s.worker, now-int64(e.opt.ClaimTTL)) {
		why = "which called for others meanwhile: it claims more than it plays, or calls touch too rarely"
	} else {
		e.workers.lose(s.worker)
	}
	s.err = timeout(fmt.Sprintf("env/remote: the claim of %s has expired: for %v no call named it, and server.claim_s is %v; worker %s holds it, %s",
		s.id, unused, e.opt.ClaimTTL, s.worker, why))
	e.fail(s, outcome{kind: outcomeExpired, reason: fmt.Sprintf("no call named it for %v", e.opt.ClaimTTL)})
}

// timeout is the error of a rollout that took too long: the runtime tells it by being
// context.DeadlineExceeded, whose own words say nothing to a reader.
type timeout string

func (t timeout) Error() string { return string(t) }

// Is reports whether target is what the runtime knows a timeout by.
func (timeout) Is(target error) bool { return target == context.DeadlineExceeded }

// fail ends a session whose Play returns an error. The run may go on with it until the log has that.
func (e *Dispatcher) fail(s *session, o outcome) {
	if s.state != stateEnded {
		e.unlogged[s.id] = make(chan struct{})
	}
	e.end(s, o)
}

// end ends a session. Only the first end counts.
func (e *Dispatcher) end(s *session, o outcome) {
	if s.state == stateEnded {
		return
	}
	e.release(s)
	if s.place != nil {
		e.offers.Remove(s.place)
		s.place = nil
	}
	o.worker, o.answer = s.worker, s.answer
	s.state, s.outcome = stateEnded, o
	e.count(s)
	delete(e.sessions, s.id)
	if e.latest[keyOf(s.task.ID)] == s {
		delete(e.latest, keyOf(s.task.ID))
	}
	if s.worker != "" {
		e.past.add(s.id, o)
	}
	if s.detach != nil {
		s.detach()
	}
	if s.running != nil {
		s.running.drop()
	}
	close(s.done)
	s.signal()
}

// release says that a session is no longer its worker's to keep alive.
func (e *Dispatcher) release(s *session) {
	if s.state == stateClaimed {
		e.claimed--
		e.workers.drop(s.worker)
		s.timer.Stop()
	}
}

func (s *session) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// enter finds the session that a worker names and notes that a call of it is open;
// leave must follow. Without a session, the outcome says what became of it, if it is known.
func (e *Dispatcher) enter(id, worker string) (*session, *outcome, error) {
	if err := checkWorker(worker); err != nil {
		return nil, nil, err
	}
	s, was, err := e.find(id)
	switch {
	case was != nil && was.worker != worker:
		return nil, was, otherWorker(id, worker)
	case was != nil:
		return nil, was, e.refusal(was, id)
	case err != nil:
		return nil, nil, err
	case s.worker != worker:
		return nil, nil, otherWorker(id, worker)
	}
	e.open(s)
	return s, nil, nil
}

// open notes that a call that names a session is under way.
func (e *Dispatcher) open(s *session) {
	s.calls++
	e.workers.enter(s.worker, e.opt.Clock())
}

// find returns the session of a claim that somebody holds, else what became of it, or why there is neither.
func (e *Dispatcher) find(id string) (*session, *outcome, error) {
	rollout, ok := parseClaimID(id)
	if !ok {
		return nil, nil, protocol.Refuse(protocol.CodeNotFound, "the rollout is named by %d characters that are no claim's: want the id of a claim, such as g12-s3-a1", len(id)) // they may be somebody's secret
	}
	s, now := e.sessions[id], e.opt.Clock()
	if e.overErr != nil && e.past.find(id) == nil {
		return nil, nil, e.stopped(id)
	}
	if s != nil && s.overdue(now) {
		e.expire(s, now)
		s = nil
	}
	switch {
	case s == nil && e.past.find(id) != nil:
		return nil, e.past.find(id), nil
	case s == nil:
		return nil, nil, e.unknown(id, rollout)
	case s.state == stateOffered:
		return nil, nil, protocol.Refuse(protocol.CodeConflict, "rollout %s is not claimed: claim it first", id)
	}
	return s, nil, nil
}

// stopped is the refusal of a call that comes after EndRun or Close.
func (e *Dispatcher) stopped(id string) error {
	if e.runEnded() {
		return protocol.Refuse(protocol.CodeExpired, "rollout %s is no longer wanted: the run has ended", id)
	}
	return e.overErr
}

// unknown is the refusal of a call that names a rollout that is not being played.
func (e *Dispatcher) unknown(id string, rollout port.RolloutID) error {
	if s := e.latest[keyOf(rollout)]; s != nil {
		return protocol.Refuse(protocol.CodeExpired, "rollout %s: %s has taken its place, and its work counts for nothing: claim another", id, s.id).With("by", s.id)
	}
	return protocol.Refuse(protocol.CodeExpired, "rollout %s is not being played: it ended long ago or before the control plane started, and nothing can be added to it: claim another", id)
}

// otherWorker refuses a call without naming the worker that holds the claim.
func otherWorker(id, worker string) error {
	return protocol.Refuse(protocol.CodeConflict, "rollout %s was not claimed under the name %s: send the name that claimed it", id, worker)
}

// leave ends a call that enter began: the claim lasts its time from now.
func (e *Dispatcher) leave(s *session) {
	now := e.opt.Clock()
	s.calls--
	e.workers.leave(s.worker, now)
	if s.calls == 0 && s.state == stateClaimed {
		s.deadline = now + int64(e.opt.ClaimTTL)
		s.timer.Reset(e.opt.ClaimTTL)
	}
}
