package remote

import (
	"cmp"
	"context"
	"io"
	"math"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/train/batch"
)

// WaitMax is the longest that a call may wait for work, in seconds.
const WaitMax = 60

// Lease implements api.Trainers.
func (t *Trainer) Lease(ctx context.Context, req protocol.LeaseRequest) (protocol.Body, error) {
	if err := checkCaller(req.Trainer, req.Rank, req.WorldSize); err != nil {
		return nil, err
	}
	switch {
	case !(req.WaitS >= 0 && req.WaitS <= WaitMax):
		return nil, protocol.Refuse(protocol.CodeInvalid, "wait_s is %g, want from 0 to %d", req.WaitS, WaitMax)
	case req.Form != "" && req.Form != protocol.FormBody && req.Form != protocol.FormReferences:
		return nil, protocol.Refuse(protocol.CodeInvalid, "form is %.40q, want %s or %s", req.Form, protocol.FormBody, protocol.FormReferences)
	case req.Kind == protocol.KindValidation && req.Form == protocol.FormReferences:
		return nil, protocol.Refuse(protocol.CodeInvalid, "a validation batch has no references: want the form %s", protocol.FormBody)
	case req.Kind == protocol.KindValidation:
		return t.validate(ctx, req)
	case req.Kind != "" && req.Kind != protocol.KindTrain:
		return nil, protocol.Refuse(protocol.CodeInvalid, "kind is %.40q, want %s or %s", req.Kind, protocol.KindTrain, protocol.KindValidation)
	}
	t.tell()
	if err := t.open(req); err != nil {
		return nil, err
	}
	defer t.shut(req)
	timer := time.NewTimer(seconds(req.WaitS))
	defer timer.Stop()
	again := time.NewTicker(askAgain)
	defer again.Stop()
	for {
		body, changed, err := t.take(req)
		if body != nil && req.Form == protocol.FormReferences {
			return t.references(body)
		}
		if body != nil || err != nil {
			return asBody(body), err
		}
		t.ask()
		select {
		case <-changed:
		case <-again.C:
		case <-timer.C:
			return nil, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func seconds(s float64) time.Duration { return time.Duration(math.Round(s * float64(time.Second))) }

// asBody keeps a nil pointer from becoming an interface that is not nil.
func asBody(b *share) protocol.Body {
	if b == nil {
		return nil
	}
	return b
}

// open takes a call that may wait as a word of its rank for as long as it lasts.
func (t *Trainer) open(req protocol.LeaseRequest) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.serving(); err != nil {
		return err
	}
	t.expire()
	if err := t.admit(req.Trainer); err != nil {
		return err
	}
	s, world := &t.session, max(req.WorldSize, 1)
	s.world = cmp.Or(s.world, world)
	if s.world != world {
		return t.otherWorld(req)
	}
	s.open++
	s.rank(req.Rank).open++
	t.waiting++
	return nil
}

// otherWorld refuses a call of a rank of another world than the trainer connected with. It is called with mu held.
func (t *Trainer) otherWorld(req protocol.LeaseRequest) error {
	return protocol.Refuse(protocol.CodeConflict, "rank %d leases for a world of %d, but trainer %s connected with %d: connect anew to change it",
		req.Rank, max(req.WorldSize, 1), t.session.name, t.session.world).With("world_size", t.session.world)
}

func (t *Trainer) shut(req protocol.LeaseRequest) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting--
	s := &t.session
	if s.name != req.Trainer {
		return // cannot be taken over while a call is open
	}
	s.open--
	s.word = t.opt.Clock()
	s.rank(req.Rank).open--
	t.touch(req.Rank)
}

// take gives a rank its share of what is on offer; without one, changed is closed when
// it is worth another look.
func (t *Trainer) take(req protocol.LeaseRequest) (body *share, changed <-chan struct{}, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	begun := t.offer != nil && len(t.offer.taken) > 0 // its step can end only if every rank has its share
	switch {
	case t.phase == runEnded:
		return nil, nil, protocol.ErrRunEnded
	case t.phase == draining && !begun:
		return nil, nil, protocol.Refuse(protocol.CodeUnavailable, "the control plane is draining and gives out no new work: try again when it is back")
	}
	if err := t.serving(); err != nil {
		return nil, nil, err
	}
	if t.session.world != max(req.WorldSize, 1) { // its trainer has connected anew since it began to wait
		return nil, nil, t.otherWorld(req)
	}
	if t.session.republish {
		return nil, nil, protocol.Refuse(protocol.CodeConflict, "versions up to %d were acknowledged without weights, and trainer %s does not hold them: publish its state as version %d (restored_from) first",
			t.version, req.Trainer, t.version+1).With("next", t.version+1)
	}
	t.expire()
	o := t.offer
	if o == nil || o.withdrawn || o.lease == req.After && req.AfterAttempt >= o.first(0) { // rank 0's publish is awaited
		return nil, t.changed, nil
	}
	world := max(req.WorldSize, 1)
	out, err := o.batch.Share(req.Rank, world, t.opt.Lease.Seconds())
	if err != nil {
		return nil, nil, err
	}
	o.world = world
	if _, again := o.taken[req.Rank]; !again {
		o.taken[req.Rank] = o.attempt // what it held before a restart it does not hold any more
		t.wake()                      // ranks that wait for its publish are not to wait for one of before
	}
	t.touch(req.Rank)
	return &share{Body: out, t: t, o: o, rank: req.Rank}, nil, nil
}

// share is a rank's body; its way to the rank counts as words of it.
type share struct {
	*batch.Body
	t    *Trainer
	o    *offer
	rank int
}

func (s *share) WriteTo(w io.Writer) (int64, error) { return s.Body.WriteTo(&heard{s, w}) }

// Close takes the end of the transfer as a word.
func (s *share) Close() error {
	s.word()
	return s.Body.Close()
}

func (s *share) word() {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	if s.t.offer == s.o {
		s.t.session.word = s.t.opt.Clock()
		s.t.touch(s.rank)
	}
}

// heard takes every piece that was written as a word of the rank that reads.
type heard struct {
	s *share
	w io.Writer
}

func (h *heard) Write(p []byte) (int, error) {
	n, err := h.w.Write(p)
	h.s.word()
	return n, err
}

// Channel implements api.Trainers.
func (t *Trainer) Channel(_ context.Context, lease loop.LeaseID, name string, req protocol.ChannelRequest) (protocol.Body, error) {
	if err := checkCaller(req.Trainer, req.Rank, cmp.Or(req.WorldSize, WorldSizeMax)); err != nil {
		return nil, err
	}
	o, world, err := t.sharing(lease, req)
	if err != nil {
		return nil, err
	}
	body, err := o.batch.Channel(t.opt.Blobs, name, req.Rank, world)
	if err != nil {
		return nil, err
	}
	return &rows{ChannelBody: body, heard: share{t: t, o: o, rank: req.Rank}}, nil
}

// Medium implements api.Trainers.
func (t *Trainer) Medium(_ context.Context, lease loop.LeaseID, hash string, req protocol.ChannelRequest) (protocol.Body, error) {
	if err := checkCaller(req.Trainer, req.Rank, cmp.Or(req.WorldSize, WorldSizeMax)); err != nil {
		return nil, err
	}
	o, world, err := t.sharing(lease, req)
	if err != nil {
		return nil, err
	}
	body, err := o.batch.Medium(t.opt.Blobs, hash, req.Rank, world)
	if err != nil {
		return nil, err
	}
	return &medium{MediumBody: body, heard: share{t: t, o: o, rank: req.Rank}}, nil
}

// medium is a medium's body; its way to the rank counts as words of it.
type medium struct {
	*batch.MediumBody
	heard share
}

func (m *medium) WriteTo(w io.Writer) (int64, error) {
	return m.MediumBody.WriteTo(&heard{&m.heard, w})
}

// sharing finds the offer that a rank has a share of, and the number of ranks.
func (t *Trainer) sharing(lease loop.LeaseID, req protocol.ChannelRequest) (*offer, int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.serving(); err != nil {
		return nil, 0, err
	}
	o, err := t.held(lease, req.Attempt, req.Trainer, req.Rank)
	if err != nil {
		return nil, 0, err
	}
	t.touch(req.Rank)
	world := cmp.Or(o.world, t.session.world, req.WorldSize, 1)
	if req.WorldSize > 0 && req.WorldSize != world || req.Rank >= world {
		return nil, 0, protocol.Refuse(protocol.CodeConflict, "rank %d of a world of %d has no share of lease %d, which is divided over %d", req.Rank, req.WorldSize, lease, world).With("world_size", world)
	}
	return o, world, nil
}

// rows is a channel's body; its way to the rank counts as words of it.
type rows struct {
	*batch.ChannelBody
	heard share
}

func (r *rows) WriteTo(w io.Writer) (int64, error) { return r.ChannelBody.WriteTo(&heard{&r.heard, w}) }

// Renew implements api.Trainers.
func (t *Trainer) Renew(_ context.Context, lease loop.LeaseID, req protocol.RenewRequest) (protocol.RenewReply, error) {
	if err := checkCaller(req.Trainer, req.Rank, WorldSizeMax); err != nil {
		return protocol.RenewReply{}, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.serving(); err != nil {
		return protocol.RenewReply{}, err
	}
	o, err := t.held(lease, req.Attempt, req.Trainer, req.Rank)
	if err != nil {
		return protocol.RenewReply{}, err
	}
	if _, mine := o.taken[req.Rank]; !mine {
		if req.Attempt == o.attempt {
			return protocol.RenewReply{}, protocol.Refuse(protocol.CodeConflict, "rank %d has no share of lease %d: lease it first", req.Rank, lease)
		}
		if world := t.session.world; world > 0 && req.Rank >= world {
			return protocol.RenewReply{}, protocol.Refuse(protocol.CodeConflict, "rank %d of a world of %d has no share of lease %d", req.Rank, world, lease)
		}
		// It holds the share since before a restart.
		o.taken[req.Rank] = o.lowest
		o.world = max(o.world, t.session.world)
	}
	t.touch(req.Rank)
	return protocol.RenewReply{DeadlineS: t.opt.Lease.Seconds()}, nil
}
