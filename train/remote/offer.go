package remote

import (
	"fmt"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/train/batch"
)

// offer is a batch on its way through a trainer.
type offer struct {
	lease   loop.LeaseID
	attempt int32
	// lowest is the first attempt that counts of a rank which has not leased from this process: a share
	// of before a restart is the same work.
	lowest  int32
	version loop.Version
	batch   *batch.Batch
	// world is the number of ranks it is divided over, 0 until the first takes its share.
	world int
	// taken are the ranks that have their share, each with the first attempt that counts of it: what a
	// rank that leases anew held before is gone, what other ranks hold is not.
	taken map[int]int32
	// busy counts what this process does with it (files copied, a version committed): meanwhile it
	// cannot run out.
	busy int
	// withdrawn: it is given to nobody any more and will end.
	withdrawn bool
	// over: report and err are Train's, and done is closed.
	over   bool
	reason string // why it was given back
	report port.StepReport
	err    error
	done   chan struct{}
}

func newOffer(b port.Batch, packed *batch.Batch) *offer {
	return &offer{lease: b.Lease, attempt: b.Attempt, lowest: 1, version: b.Version, batch: packed,
		taken: make(map[int]int32), done: make(chan struct{})}
}

// first is the first attempt that counts of a rank.
func (o *offer) first(rank int) int32 {
	if attempt, ok := o.taken[rank]; ok {
		return attempt
	}
	return o.lowest
}

// counts reports whether what a rank computed in an attempt is work on the batch still. Rank 0's
// may end the step.
func (o *offer) counts(rank int, attempt int32) bool {
	return attempt >= o.first(rank) && attempt <= o.attempt
}

// countsOfAny reports whether any rank may still work on the batch in an attempt.
func (o *offer) countsOfAny(attempt int32) bool {
	for rank := range o.taken {
		if o.counts(rank, attempt) {
			return true
		}
	}
	return o.counts(0, attempt)
}

// end ends an offer with what Train returns; made is the version it was committed as, or
// loop.NoVersion. It is called with mu held.
func (t *Trainer) end(o *offer, made loop.Version, report port.StepReport, err error) {
	if o.over {
		panic(fmt.Sprintf("trainer: lease %d ends twice", o.lease))
	}
	o.over, o.report, o.err = true, report, err
	t.ended.add(ending{lease: o.lease, attempt: o.attempt, made: made, at: t.opt.Clock(), reason: o.reason})
	if t.offer == o {
		t.offer = nil
	}
	close(o.done)
	t.wake()
}

// giveBack returns a batch untrained. It is called with mu held.
func (t *Trainer) giveBack(o *offer, format string, args ...any) {
	o.reason = fmt.Sprintf(format, args...)
	t.opt.Logf("trainer: lease %d goes back to the queue: %s", o.lease, o.reason)
	t.end(o, loop.NoVersion, port.StepReport{}, fmt.Errorf("trainer: lease %d: %s: %w", o.lease, o.reason, port.ErrLeaseReturned))
}

// expire gives the batch back if a rank that has its share was silent for too long. Every
// call looks before it counts, so that nothing depends on when a timer fires. It is
// called with mu held.
func (t *Trainer) expire() {
	o := t.offer
	if o == nil || o.busy > 0 || o.withdrawn {
		return
	}
	now, worst, longest := t.opt.Clock(), 0, time.Duration(0)
	for rank := range o.taken {
		if silent := t.session.rank(rank).silent(now); silent > longest || silent == longest && rank < worst {
			worst, longest = rank, silent
		}
	}
	if longest > t.opt.Lease {
		t.giveBack(o, "rank %d of trainer %s was silent for %.1f s, longer than the %.1f s of a lease: renew it more often, or raise server.lease_s",
			worst, t.session.name, longest.Seconds(), t.opt.Lease.Seconds())
	}
}

// lookAgain is the least time between two looks at a lease: its clock may stand still.
const lookAgain = 100 * time.Millisecond

// untilSilent is how long until a rank can have been silent for too long.
func (t *Trainer) untilSilent(o *offer) time.Duration {
	left, now := t.opt.Lease, t.opt.Clock()
	for rank := range o.taken {
		left = min(left, t.opt.Lease-t.session.rank(rank).silent(now))
	}
	return max(left, lookAgain) + time.Millisecond // silent for longer than a lease
}

// ending is how a lease ended in this process.
type ending struct {
	lease   loop.LeaseID
	attempt int32
	// made is the version that it was committed as, loop.NoVersion if it was not.
	made loop.Version
	// at is when, by the run's clock; reason says why it was given back, empty if it was not.
	at     int64
	reason string
}

// memoryLeases is how many leases back a repeated call still gets its answer.
const memoryLeases = 256

// memory holds the endings of the newest leases.
type memory struct {
	endings [memoryLeases]ending
	next    int
}

func (m *memory) add(e ending) {
	m.endings[m.next%memoryLeases] = e
	m.next++
}

// find returns the last ending of a lease.
func (m *memory) find(lease loop.LeaseID) (ending, bool) {
	for i := m.next - 1; i >= max(0, m.next-memoryLeases); i-- {
		if e := m.endings[i%memoryLeases]; e.lease == lease {
			return e, true
		}
	}
	return ending{}, false
}

// expired refuses work on a lease that is not out any more, and says why where this process gave it back. It is called
// with mu held.
func (t *Trainer) expired(lease loop.LeaseID, attempt int32) *protocol.Refusal {
	if last, ok := t.ended.find(lease); ok && last.reason != "" && attempt <= last.attempt {
		return protocol.Refuse(protocol.CodeExpired, "lease %d, attempt %d went back to the queue %.1f s ago: %s; drop its results and lease again",
			lease, attempt, time.Duration(t.opt.Clock()-last.at).Seconds(), last.reason).With("lease", lease).With("attempt", attempt)
	}
	return protocol.Refuse(protocol.CodeExpired, "lease %d, attempt %d is not out any more: it expired, was given back or is of another run; drop its results and lease again",
		lease, attempt).With("lease", lease).With("attempt", attempt)
}

// notOut refuses a call on a lease that is not on offer: it may be yet to come after a restart. It is called with mu held.
func (t *Trainer) notOut(lease loop.LeaseID, attempt int32) *protocol.Refusal {
	if lease == t.awaited {
		return protocol.Refuse(protocol.CodeUnavailable, "the run was restarted and does not have lease %d on offer yet: it stays yours, try again in a moment", lease)
	}
	return t.expired(lease, attempt)
}

// committed finds the version that a lease was committed as, here or before a restart. It
// is called with mu held.
func (t *Trainer) committed(lease loop.LeaseID) (loop.Version, bool) {
	if e, ok := t.ended.find(lease); ok && e.made != loop.NoVersion {
		return e.made, true
	}
	if t.version >= 0 {
		if m, err := t.opt.Weights.Manifest(t.version); err == nil && m.Lease == lease && lease != 0 {
			return t.version, true
		}
	}
	return loop.NoVersion, false
}

// anyRank stands for whichever rank it was.
const anyRank = -1

// held finds the offer that a rank's call speaks of and takes the call as a word of its trainer. A
// call may name an attempt from before a restart, which counts until its rank leases the
// batch anew. It is called with mu held.
func (t *Trainer) held(lease loop.LeaseID, attempt int32, trainer string, rank int) (*offer, error) {
	if lease < 1 {
		return nil, protocol.Refuse(protocol.CodeInvalid, "lease %d, want the number that the batch came with", lease)
	}
	t.expire()
	o := t.offer
	if o == nil || o.lease != lease || o.withdrawn {
		return nil, t.notOut(lease, attempt)
	}
	if rank == anyRank && !o.countsOfAny(attempt) || rank != anyRank && !o.counts(rank, attempt) {
		return nil, t.expired(lease, attempt)
	}
	if len(o.taken) == 0 && attempt == o.attempt {
		return nil, protocol.Refuse(protocol.CodeConflict, "lease %d is on offer and not taken: lease it first", lease).With("lease", lease)
	}
	if err := t.admit(trainer); err != nil {
		return nil, err
	}
	return o, nil
}
