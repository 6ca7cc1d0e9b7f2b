package remote

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headway-rl/headway/api/protocol"
)

// Limits of a request for claims.
const (
	claimsMax = 1024
	waitMaxS  = 60
)

// waiter is a worker's call that waits for an offer.
type waiter struct {
	worker string
	got    []*session
	ready  chan struct{} // closed with the first it got
}

// Claim implements api.Rollouts: claims are given in the order of offers, to workers
// in the order in which they began to wait.
func (e *Dispatcher) Claim(ctx context.Context, req protocol.ClaimRequest) (protocol.Claims, error) {
	if err := e.checkClaim(&req); err != nil {
		return protocol.Claims{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.claimErr != nil {
		return protocol.Claims{}, e.claimErr
	}
	e.workers.enter(req.Worker, e.opt.Clock())
	defer func() { e.workers.leave(req.Worker, e.opt.Clock()) }()
	var got []*session
	if e.firstOffer(req.Worker) == nil && req.WaitS > 0 {
		got = e.await(ctx, &req)
	}
	for len(got) < req.Max && e.claimErr == nil {
		s := e.firstOffer(req.Worker)
		if s == nil {
			break
		}
		e.grant(s, req.Worker)
		got = append(got, s)
	}
	slices.SortFunc(got, func(a, b *session) int { return cmp.Compare(a.number, b.number) }) // one may have been given back meanwhile
	err := e.keepClaims(got)
	if err != nil {
		err = protocol.Refuse(protocol.CodeUnavailable, "claims cannot be kept at the moment, and are offered again: %v", err)
	}
	if ctx.Err() != nil { // nobody is there to be told
		err = ctx.Err()
	}
	if err != nil {
		e.giveBack(got)
		return protocol.Claims{}, err
	}
	if len(got) == 0 && e.claimErr != nil {
		return protocol.Claims{}, e.claimErr
	}
	return e.claims(got), nil
}

func checkWorker(name string) error {
	if err := protocol.CheckName(name); err != nil {
		return protocol.Refuse(protocol.CodeInvalid, "worker %.140q: %v", name, err)
	}
	return nil
}

func (e *Dispatcher) checkClaim(req *protocol.ClaimRequest) error {
	if err := checkWorker(req.Worker); err != nil {
		return err
	}
	req.Max = cmp.Or(req.Max, 1)
	if req.Max < 0 || req.Max > claimsMax {
		return protocol.Refuse(protocol.CodeInvalid, "max is %d: want 1 to %d rollouts at once", req.Max, claimsMax)
	}
	if !(req.WaitS >= 0 && req.WaitS <= waitMaxS) {
		return protocol.Refuse(protocol.CodeInvalid, "wait_s is %g: want 0 to %d seconds", req.WaitS, waitMaxS)
	}
	if len(req.Environments) > 0 && !slices.Contains(req.Environments, e.opt.Name) {
		return protocol.Refuse(protocol.CodeInvalid, "this run's rollouts are of environment %q, and worker %s plays %s. Set environment.name to what it plays, or start another worker",
			e.opt.Name, req.Worker, quotedSome(req.Environments)).With("environment", e.opt.Name)
	}
	return nil
}

// quotedSome quotes the first names of environments: a worker may say many, and long ones.
func quotedSome(names []string) string {
	const most = 4
	var quoted []string
	for _, name := range names[:min(len(names), most)] {
		quoted = append(quoted, fmt.Sprintf("%.64q", name))
	}
	if more := len(names) - most; more > 0 {
		quoted = append(quoted, fmt.Sprintf("%d more", more))
	}
	return strings.Join(quoted, ", ")
}

// await waits until a rollout is offered; it returns none if none was in time. e.mu
// must be held, and is.
func (e *Dispatcher) await(ctx context.Context, req *protocol.ClaimRequest) []*session {
	w := &waiter{worker: req.Worker, ready: make(chan struct{})}
	place := e.waiters.PushBack(w)
	e.mu.Unlock()
	timer := time.NewTimer(time.Duration(req.WaitS * float64(time.Second)))
	defer timer.Stop()
	select {
	case <-w.ready:
	case <-timer.C:
	case <-e.noClaims:
	case <-ctx.Done():
	}
	e.mu.Lock()
	if len(w.got) == 0 {
		e.waiters.Remove(place)
	}
	return w.got
}

// firstOffer is the oldest offer that a worker may be given, nil if there is none.
func (e *Dispatcher) firstOffer(worker string) *session {
	for at := e.offers.Front(); at != nil; at = at.Next() {
		if s := at.Value.(*session); e.mayPlay(worker, s) {
			return s
		}
	}
	return nil
}

// firstWaiter takes the waiter that has waited longest of those who may be given an offer, nil if there is none.
func (e *Dispatcher) firstWaiter(s *session) *waiter {
	for at := e.waiters.Front(); at != nil && e.claimErr == nil; at = at.Next() {
		if w := at.Value.(*waiter); e.mayPlay(w.worker, s) {
			e.waiters.Remove(at)
			return w
		}
	}
	return nil
}

// grant makes an offer a worker's claim.
func (e *Dispatcher) grant(s *session, worker string) {
	if s.place != nil {
		e.offers.Remove(s.place)
		s.place = nil
	}
	s.state, s.worker, s.deadline = stateClaimed, worker, e.opt.Clock()+int64(e.opt.ClaimTTL)
	s.timer = time.AfterFunc(e.opt.ClaimTTL, func() { e.look(s) })
	e.claimed++
	e.room.grants++
	s.grant = e.room.grants
	e.workers.hold(worker)
}

// giveBack undoes grants that nobody has heard of: they are offered again, where they stood among the offers.
func (e *Dispatcher) giveBack(got []*session) {
	for _, s := range got {
		if s.state != stateClaimed {
			continue // it ended meanwhile
		}
		e.release(s)
		s.state, s.worker = stateOffered, ""
		behind := e.offers.Front()
		for behind != nil && behind.Value.(*session).number < s.number {
			behind = behind.Next()
		}
		if behind == nil {
			s.place = e.offers.PushBack(s)
		} else {
			s.place = e.offers.InsertBefore(s, behind)
		}
	}
	for at := e.offers.Front(); at != nil && e.waiters.Len() > 0; {
		s := at.Value.(*session)
		at = at.Next()
		if w := e.firstWaiter(s); w != nil {
			e.hand(s, w)
		}
	}
}

// hand gives an offer to a waiter.
func (e *Dispatcher) hand(s *session, w *waiter) {
	e.grant(s, w.worker)
	w.got = append(w.got, s)
	close(w.ready)
}

// claims are the sessions as their worker is told of them.
func (e *Dispatcher) claims(got []*session) protocol.Claims {
	var out protocol.Claims
	for _, s := range got {
		id := s.task.ID
		out.Rollouts = append(out.Rollouts, protocol.Claim{
			ID: s.id, Group: id.Group, Sample: id.Sample, Attempt: id.Attempt,
			Environment: e.opt.Name, Prompt: s.task.PromptNumber(), Level: s.task.Level,
			Seed: e.opt.Seed, DeadlineS: e.opt.ClaimTTL.Seconds(), Evaluation: id.Group < 0,
		})
	}
	return out
}
