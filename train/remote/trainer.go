package remote

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/store/weights"
	"github.com/headway-rl/headway/train/batch"
)

// Trainer implements port.Trainer for the runtime and api.Trainers for the server. The
// methods of the second are safe for concurrent use.
type Trainer struct {
	opt Options

	// commits is held while a version is committed, and by whoever would end an offer that one
	// could be committed for. It is taken before mu.
	commits sync.Mutex

	mu sync.Mutex
	// channels are those of the batches that were offered.
	channels []protocol.ChannelSummary
	// changed is closed, and replaced, when what a waiting call looks at has changed.
	changed chan struct{}
	phase   phase
	// version is the newest that is committed, with or without weights.
	version loop.Version
	// awaited is the lease that the log holds out and that Train is yet to offer again, 0 for none.
	awaited loop.LeaseID
	// restored is the newest version that a trainer made of an earlier state, loop.NoVersion for none.
	restored loop.Version
	// untold are restored versions that the loop may not know of, because the process ended in between.
	untold  []loop.Version
	session session
	offer   *offer
	// asked: OnReady was told since the last offer, last at askedAt. waiting counts calls that wait
	// for a batch.
	asked   bool
	askedAt int64
	waiting int
	ended   memory

	greedy validation
	refs   references
}

var _ port.Trainer = (*Trainer)(nil)

// phase says what is answered to those who ask for work.
type phase uint8

const (
	starting     phase = iota // neither initialized nor restored
	initializing              // version 0 is the trainer's to make
	running
	draining // no new work, but what was leased may be finished
	runEnded // there will be no work
	closed   // nothing is answered
)

// New returns a trainer that answers once Initialize or Restore was called.
func New(opt Options) (*Trainer, error) {
	if err := opt.Validate(); err != nil {
		return nil, err
	}
	t := &Trainer{opt: opt.withDefaults(), changed: make(chan struct{}), version: loop.NoVersion, restored: loop.NoVersion}
	t.greedy.init()
	t.refs.init()
	return t, nil
}

// wake lets waiting calls look again. It is called with mu held.
func (t *Trainer) wake() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// batchOptions are those of every batch to train on, and of the body of each of its groups.
func (t *Trainer) batchOptions() batch.Options {
	return batch.Options{Vocabulary: t.opt.Vocabulary, NormalizeStd: t.opt.NormalizeStd}
}

// Train implements port.Trainer: it offers the batch and returns when the version made of it is
// committed. It returns an error that wraps port.ErrLeaseReturned when the lease ran out or was given
// back.
func (t *Trainer) Train(ctx context.Context, b port.Batch) (port.StepReport, error) {
	opt := t.batchOptions()
	opt.Channels, opt.Lost = t.opt.Channels(), t.lost
	packed, err := batch.New(b, opt)
	if err != nil {
		return port.StepReport{}, err
	}
	o, err := t.offerBatch(b, packed)
	if err != nil {
		t.tell()
		return port.StepReport{}, err
	}
	timer := time.NewTimer(t.opt.Lease)
	defer timer.Stop()
	for {
		timer.Reset(t.watch(o))
		select {
		case <-o.done:
			t.ask()
			return o.report, o.err
		case <-ctx.Done():
			t.stop(o, ctx.Err())
			return o.report, o.err
		case <-timer.C:
		}
	}
}

// offerBatch puts a batch on offer, unless its version is over.
func (t *Trainer) offerBatch(b port.Batch, packed *batch.Batch) (*offer, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asked, t.awaited = false, 0
	switch {
	case t.phase == closed:
		return nil, errors.New("trainer: it is closed")
	case b.Version < t.restored:
		return nil, fmt.Errorf("trainer: the batch starts from version %d, and the trainer went back to an earlier state as version %d: %w",
			b.Version, t.restored, port.ErrLeaseReturned)
	case b.Version < t.version:
		return nil, fmt.Errorf("trainer: the batch starts from version %d, but version %d is published, from none of this run's leases. Move versions above %d out of the weights' directory",
			b.Version, t.version, b.Version)
	case b.Version > t.version:
		return nil, fmt.Errorf("trainer: the batch starts from version %d, but the newest that is published is %d", b.Version, t.version)
	}
	t.offer = newOffer(b, packed)
	t.count(packed.Channels())
	if last, ok := t.ended.find(b.Lease); ok {
		t.offer.lowest = last.attempt + 1 // this process has seen the end of the attempts before
	}
	t.wake()
	return t.offer, nil
}

// watch ends an offer whose lease has run out, and returns when to look again.
func (t *Trainer) watch(o *offer) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expire()
	if o.over {
		return t.opt.Lease
	}
	return t.untilSilent(o)
}

// stop ends an offer because this process does: the lease stays outstanding in the log.
func (t *Trainer) stop(o *offer, err error) {
	t.commits.Lock() // what is being committed is committed first
	defer t.commits.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if !o.over {
		t.phase = closed
		t.end(o, loop.NoVersion, port.StepReport{}, err)
	}
}

// Restore implements port.Trainer: the run stands at a version, which a trainer that connects
// is told to load. Calls on the outstanding lease are unavailable until it is on offer again.
func (t *Trainer) Restore(_ context.Context, version loop.Version, outstanding loop.LeaseID) error {
	t.commits.Lock() // what is committed meanwhile would be forgotten
	defer t.commits.Unlock()
	versions, err := t.opt.Weights.Versions()
	if err != nil {
		return err
	}
	newest, untold := version, []loop.Version(nil)
	for _, v := range versions {
		if v <= version {
			continue
		}
		// Either the outstanding lease made it, which the runtime finds, or a trainer that went back.
		m, err := t.opt.Weights.Manifest(v)
		if err != nil {
			return err
		}
		if m.RestoredFrom != nil {
			untold = append(untold, v)
		}
		if m.Lease == outstanding {
			outstanding = 0
		}
		newest = v
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.version, t.untold, t.awaited = newest, untold, outstanding
	if n := len(untold); n > 0 {
		t.restored = untold[n-1]
	}
	t.begin()
	return nil
}

// Initialize implements port.Trainer: version 0 is made by Options.Initial or, without it, by
// the trainer that connects, for which it waits.
func (t *Trainer) Initialize(ctx context.Context) error {
	if _, err := t.opt.Weights.Manifest(0); err == nil {
		return t.Restore(ctx, 0, 0)
	} else if !errors.Is(err, weights.ErrNotFound) {
		return err
	}
	if t.opt.Initial != nil {
		if err := t.opt.Initial(ctx); err != nil {
			return err
		}
		return t.Restore(ctx, 0, 0)
	}
	t.mu.Lock()
	t.phase = initializing
	t.wake()
	for t.version < 0 {
		changed, over := t.changed, t.phase == closed
		t.mu.Unlock()
		if over {
			return errors.New("trainer: closed before a trainer had published version 0")
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
		t.mu.Lock()
	}
	t.begin()
	t.mu.Unlock()
	return nil
}

// begin has work given out. It is called with mu held.
func (t *Trainer) begin() {
	if t.phase < running {
		t.phase = running
	}
	t.wake()
}

// askAgain is how often an ask that nothing came of is repeated: the first may have come before
// there was a loop to hear it.
const askAgain = 5 * time.Second

// ask tells the loop that a trainer waits and has nothing. It is called without mu.
func (t *Trainer) ask() {
	t.mu.Lock()
	now := t.opt.Clock()
	due := t.phase == running && t.waiting > 0 && t.offer == nil && (!t.asked || now-t.askedAt >= int64(askAgain))
	if due {
		t.asked, t.askedAt = true, now
	}
	t.mu.Unlock()
	if due {
		t.opt.OnReady()
	}
}

// tell tells the loop of restored versions that it may not know of, and asks.
func (t *Trainer) tell() {
	t.mu.Lock()
	untold := t.untold
	t.untold = nil
	t.mu.Unlock()
	for _, v := range untold {
		t.opt.OnRestored(v)
	}
	t.ask()
}

// Drain gives out no new work; a leased batch may be finished. Those who wait are told to come back.
func (t *Trainer) Drain() { t.enter(draining) }

// EndRun says that the run is done: those who ask for work are told that there will be none.
func (t *Trainer) EndRun() { t.enter(runEnded) }

// Close implements port.Trainer. A caller is told that this process is stopping, or that the run has
// ended if EndRun said so.
func (t *Trainer) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.phase != runEnded {
		t.phase = closed
	}
	t.greedy.stop()
	t.wake()
	return nil
}

func (t *Trainer) enter(p phase) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.phase < p {
		t.phase = p
	}
	t.wake()
}

// count adds a batch's side channels to those of the batches before. It is called with mu held.
func (t *Trainer) count(batch []protocol.ChannelSummary) {
	for _, c := range batch {
		at := slices.IndexFunc(t.channels, func(known protocol.ChannelSummary) bool { return known.Name == c.Name })
		if at < 0 {
			t.channels = append(t.channels, c)
			continue
		}
		t.channels[at].Rows += c.Rows
		t.channels[at].Absent += c.Absent
	}
}

// lost counts rows of a batch that the store could not give.
func (t *Trainer) lost(name string, rows int, err error) {
	t.mu.Lock()
	first := false
	if at := slices.IndexFunc(t.channels, func(known protocol.ChannelSummary) bool { return known.Name == name }); at >= 0 {
		first = t.channels[at].Lost == 0
		t.channels[at].Lost += rows
	}
	t.mu.Unlock()
	if first {
		t.opt.Logf("trainer: %d rows beside the tokens are lost, and absent in the batch: %v; further ones are counted in the status", rows, err)
	}
}

// Status is what the control plane's status says of the trainer; IdleRatio is not known here.
func (t *Trainer) Status() protocol.Trainer {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.opt.Clock()
	s := protocol.Trainer{Name: t.session.name, State: "absent", SilentS: t.session.silent(now).Seconds(), WorldSize: t.session.world, Channels: slices.Clone(t.channels)}
	o := t.offer
	if o != nil && len(o.taken) > 0 {
		s.Lease = o.lease
	}
	switch {
	case t.session.name == "" || !t.alive(now):
	case o != nil && len(o.taken) > 0:
		s.State = "training"
	case o != nil:
		s.State = "offered"
	default:
		s.State = "idle"
	}
	return s
}
