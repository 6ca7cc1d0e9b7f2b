package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/store/weights"
)

// FilesMax bounds the files of a version.
const FilesMax = 1 << 16

// publication is what a publish turned out to be about.
type publication struct {
	protocol.PublishRequest
	// offer is the batch that it commits, nil for version 0, for a restored version and for one that is there already.
	offer *offer
	// again: the version is there, and what comes is compared with it.
	again bool
}

// restored: it makes an earlier version's state the next version.
func (p *publication) restored() bool { return p.RestoredFrom != nil }

// Publish implements api.Trainers.
func (t *Trainer) Publish(ctx context.Context, req protocol.PublishRequest, next func() (string, io.Reader, error)) (protocol.PublishReply, error) {
	if err := checkPublish(&req); err != nil {
		return protocol.PublishReply{}, err
	}
	p, err := t.classify(req)
	if err != nil {
		return protocol.PublishReply{}, err
	}
	defer t.finish(req.Trainer)
	draft, err := t.draft(ctx, p.description())
	if err != nil {
		return protocol.PublishReply{}, err
	}
	defer func() { _ = draft.Abort() }() // what it cannot delete now goes with the next start
	if err := t.receive(ctx, p, draft, next); err != nil {
		return protocol.PublishReply{}, t.failed(err)
	}
	existing, err := t.commit(ctx, p, draft)
	if err != nil {
		return protocol.PublishReply{}, err
	}
	return protocol.PublishReply{Version: req.Version, Existing: existing}, nil
}

// checkPublish refuses what contradicts itself, and fills in the kind.
func checkPublish(req *protocol.PublishRequest) error {
	invalid := func(format string, args ...any) error {
		return protocol.Refuse(protocol.CodeInvalid, format, args...)
	}
	if err := checkCaller(req.Trainer, 0, 0); err != nil {
		return err
	}
	req.Kind = cmp.Or(req.Kind, weights.KindFull)
	switch {
	case req.Version < 0 || req.Lease < 0:
		return invalid("version %d of lease %d, want neither negative", req.Version, req.Lease)
	case req.Kind != weights.KindFull && req.Kind != weights.KindDelta:
		return invalid("kind is %.40q, want %s or %s", req.Kind, weights.KindFull, weights.KindDelta)
	case req.RestoredFrom != nil && req.Lease != 0:
		return invalid("restored_from is %d and lease is %d: a restored version is made of no batch, give one of them", *req.RestoredFrom, req.Lease)
	case req.Directory != "" && req.Rendezvous != "":
		return invalid("directory and rendezvous are both given, want one of them")
	case req.Rendezvous != "" && len(req.Files) > 0:
		return invalid("%d files beside rendezvous %.80q, want no files", len(req.Files), req.Rendezvous)
	case req.Rendezvous != "" && req.Kind != weights.KindFull:
		return invalid("kind is %s over rendezvous %.80q, want %s", req.Kind, req.Rendezvous, weights.KindFull)
	case len(req.Files) > FilesMax:
		return invalid("%d files, want at most %d", len(req.Files), FilesMax)
	}
	return checkMetrics(req.Metrics)
}

// description is what the store of weights is told.
func (p *publication) description() weights.Description {
	d := weights.Description{Version: p.Version, Lease: p.Lease, Kind: p.Kind, BaseVersion: p.BaseVersion,
		Encoding: weights.Encoding(p.Encoding), RestoredFrom: p.RestoredFrom}
	if p.Rendezvous != "" {
		d.Kind = weights.KindNone
	}
	for _, f := range p.Files {
		d.Files = append(d.Files, weights.File{Name: f.Name, Size: f.Size, Hash: f.Hash})
	}
	return d
}

// classify decides what a publish is about before a byte of its files is read, and keeps its trainer
// from being taken over while it lasts.
func (t *Trainer) classify(req protocol.PublishRequest) (*publication, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.serving(); err != nil {
		return nil, err
	}
	t.expire()
	p := &publication{PublishRequest: req}
	var err error
	switch {
	case p.restored():
		err = t.checkRestored(p)
	case req.Lease == 0:
		err = t.checkInitial(p)
	default:
		err = t.checkMade(p)
	}
	if err == nil && !p.again && p.offer == nil {
		err = t.admit(req.Trainer)
	}
	if err == nil && t.session.name == req.Trainer {
		t.session.open++
	}
	return p, err
}

func (t *Trainer) finish(trainer string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := &t.session; s.name == trainer && s.open > 0 {
		s.open--
		s.word = t.opt.Clock()
	}
}

// outOfOrder refuses a version that is not the next one.
func outOfOrder(got, want loop.Version) error {
	return protocol.Refuse(protocol.CodeConflict, "version %d is out of order: the next one is %d", got, want).With("version", got).With("expected", want)
}

// checkRestored decides about a trainer that went back to an earlier state.
func (t *Trainer) checkRestored(p *publication) error {
	from := *p.RestoredFrom
	switch {
	case from < 0 || from > t.version:
		return protocol.Refuse(protocol.CodeInvalid, "restored_from is %d, want a version from 0 to %d, the newest", from, t.version)
	case p.Version == t.version:
		m, err := t.opt.Weights.Manifest(p.Version)
		p.again = err == nil && m.RestoredFrom != nil && *m.RestoredFrom == from
	}
	switch {
	case p.again:
		return nil
	case t.phase == runEnded: // nothing follows from it, and the loop would not know it
		return protocol.ErrRunEnded
	case p.Version != t.version+1:
		return outOfOrder(p.Version, t.version+1)
	}
	return nil
}

// checkInitial decides about a version made of no batch.
func (t *Trainer) checkInitial(p *publication) error {
	switch {
	case p.Version != 0:
		return protocol.Refuse(protocol.CodeConflict, "version %d comes without a lease: only version 0 and a restored version (restored_from) are made of no batch", p.Version).With("expected", t.version+1)
	case t.version < 0 && t.phase == initializing:
		return nil
	case t.version < 0:
		return protocol.Refuse(protocol.CodeUnavailable, "the run makes version 0 itself: connect again in a moment")
	}
	if _, err := t.opt.Weights.Manifest(0); err != nil {
		return outOfOrder(0, t.version+1) // it was there once: the run is further
	}
	p.again = true
	return nil
}

// checkMade decides about a version made of a batch.
func (t *Trainer) checkMade(p *publication) error {
	if t.offer == nil || t.offer.lease != p.Lease {
		version, ok := t.committed(p.Lease)
		if !ok {
			return t.notOut(p.Lease, p.Attempt)
		}
		if version != p.Version {
			return protocol.Refuse(protocol.CodeConflict, "lease %d was committed as version %d, not %d", p.Lease, version, p.Version).With("version", version)
		}
		if _, err := t.opt.Weights.Manifest(version); err != nil {
			return protocol.Refuse(protocol.CodeExpired, "lease %d was committed as version %d, which has been pruned since", p.Lease, version).With("version", version)
		}
		p.again = true
		return nil
	}
	o, err := t.held(p.Lease, p.Attempt, p.Trainer, 0)
	if err != nil {
		return err
	}
	t.touch(0) // whatever comes of it
	if p.Version != o.version+1 {
		return outOfOrder(p.Version, o.version+1)
	}
	p.offer = o
	return stamps{forward: p.ForwardVersion, step: p.StepVersion}.check(o.version)
}

// receive takes the files to the draft.
func (t *Trainer) receive(ctx context.Context, p *publication, draft *weights.Draft, next func() (string, io.Reader, error)) error {
	if p.offer != nil && (p.Rendezvous != "" || p.Directory != "") {
		t.hold(p.offer)
		defer t.release(p.offer)
	}
	switch {
	case p.Rendezvous != "":
		if t.opt.Collective == nil {
			return protocol.Refuse(protocol.CodeInvalid, "rendezvous %.80q: engines of this run join no collective: publish files", p.Rendezvous)
		}
		if p.again {
			return nil // it was confirmed when it was committed, and who sent it may hold later ones alone by now
		}
		return t.opt.Collective(ctx, p.Rendezvous, p.Version)
	case p.Directory != "":
		return draft.AddDirectory(ctx, p.Directory)
	case p.restored() && len(p.Files) == 0:
		return draft.AddVersion(ctx, *p.RestoredFrom)
	case next == nil:
		return protocol.Refuse(protocol.CodeInvalid, "neither files, directory nor rendezvous: send files as multipart/form-data after the part manifest")
	}
	for i := 0; ; i++ {
		name, content, err := next()
		switch {
		case errors.Is(err, io.EOF) && i == len(p.Files) && i > 0:
			return nil
		case errors.Is(err, io.EOF):
			return protocol.Refuse(protocol.CodeInvalid, "%d files came, want the %d of the manifest, at least one", i, len(p.Files))
		case err != nil:
			return err
		case i == len(p.Files):
			return protocol.Refuse(protocol.CodeInvalid, "part %.80q comes after the %d files of the manifest", name, i)
		case name != p.Files[i].Name:
			return protocol.Refuse(protocol.CodeInvalid, "part %d is %.80q, want %s: the order of the manifest", i+1, name, p.Files[i].Name)
		}
		in := &upload{t: t, p: p, r: content}
		if err := draft.Add(ctx, name, in); err != nil {
			if in.err != nil {
				return brokeOff(name, in.err)
			}
			return err
		}
	}
}

// brokeOff names the file that an upload ended in.
func brokeOff(name string, err error) error {
	if refusal, ok := errors.AsType[*protocol.Refusal](err); ok {
		return refusal
	}
	return protocol.Refuse(protocol.CodeInvalid, "file %s broke off: %v; nothing was published, send it again", name, err)
}

// upload reads a file and takes every piece as a word of the trainer: a lease does not run out
// under a version on its way.
type upload struct {
	t   *Trainer
	p   *publication
	r   io.Reader
	err error // of the connection
}

func (u *upload) Read(b []byte) (int, error) {
	n, err := u.r.Read(b)
	if err != nil && err != io.EOF {
		u.err = err
		err = fmt.Errorf("the connection broke: %w", err) // io.ErrUnexpectedEOF, too, is no end of a file
	}
	if n > 0 && u.p.offer != nil {
		u.t.mu.Lock()
		if u.t.offer == u.p.offer {
			u.t.touchAll()
		}
		u.t.mu.Unlock()
	}
	return n, err
}

// commit makes a complete draft a version, if nothing has come in between.
func (t *Trainer) commit(ctx context.Context, p *publication, draft *weights.Draft) (existing bool, err error) {
	t.commits.Lock()
	if err := t.last(p); err != nil {
		t.commits.Unlock()
		return false, err
	}
	existing, err = t.place(ctx, draft, p.offer, p.Version, p.Metrics)
	var from *offer
	if err == nil && p.restored() && !p.again {
		from = t.goBack(p.Version)
	}
	t.commits.Unlock()
	if err == nil && p.restored() && !p.again {
		t.goOn(p, from)
	}
	return existing, err
}

// last looks again, after the files have come and with commits held.
func (t *Trainer) last(p *publication) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.serving(); err != nil {
		return err
	}
	t.expire()
	switch {
	case p.again:
		return nil
	case p.offer != nil && p.offer.over:
		if made, ok := t.committed(p.Lease); ok && made == p.Version {
			p.offer, p.again = nil, true // another try was faster
			return nil
		}
		return t.expired(p.Lease, p.Attempt)
	case p.offer != nil:
		if !p.offer.counts(0, p.Attempt) || p.offer.withdrawn {
			return t.expired(p.Lease, p.Attempt)
		}
		p.offer.busy++
	case p.Version == t.version:
		p.again = true // another try was faster; the store compares
	case p.Version != t.version+1:
		return outOfOrder(p.Version, t.version+1)
	}
	return nil
}

// place commits a draft and, with it, the offer that it was made of, if any. What counts is
// whether the manifest is there.
func (t *Trainer) place(ctx context.Context, draft *weights.Draft, o *offer, version loop.Version, metrics map[string]float64) (existing bool, err error) {
	if err = t.fenced(); err == nil {
		// A client that goes away now must not leave it open whether the version is there.
		existing, err = draft.Commit(context.WithoutCancel(ctx))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if o != nil {
		t.rest(o)
	}
	if err != nil {
		if o == nil {
			return false, t.failed(err)
		}
		m, gone := t.opt.Weights.Manifest(version)
		if gone != nil || m.Lease != o.lease {
			return false, t.failed(err)
		}
	}
	if o != nil || version == 0 {
		t.version = max(t.version, version)
	}
	if o != nil {
		t.end(o, version, o.stepReport(metrics), nil)
	}
	t.wake()
	if err != nil {
		return false, refusal(err)
	}
	return existing, nil
}

// fenced refuses what only the run's writer may do, if this process is not it.
func (t *Trainer) fenced() error {
	if err := t.opt.Fence(); err != nil {
		return protocol.Refuse(protocol.CodeUnavailable, "this process is not the run's writer any more: %v; send it to the one that is", err)
	}
	return nil
}

// draft begins a version, which only the run's writer may put in its place.
func (t *Trainer) draft(ctx context.Context, d weights.Description) (*weights.Draft, error) {
	d.Fence = t.fenced
	draft, err := t.opt.Weights.Begin(ctx, d)
	if err != nil {
		return nil, t.failed(err)
	}
	return draft, nil
}

// failed says what a client is to do about an error of the store of weights. Whatever it
// says, it is another process' directory where this one has been deposed.
func (t *Trainer) failed(err error) error {
	if fenced := t.fenced(); fenced != nil {
		return fenced
	}
	return refusal(err)
}

// release lets an offer run out again, from now on.
func (t *Trainer) release(o *offer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rest(o)
}

// rest counts an offer's silence from now on. It is called with mu held.
func (t *Trainer) rest(o *offer) {
	o.busy--
	if t.offer == o {
		t.touchAll()
	}
}

// hold keeps an offer from running out while this process reads files itself.
func (t *Trainer) hold(o *offer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o.busy++
}

// goBack takes the run to a restored version and what is on offer from the one before away
// from everybody. It is called with commits held.
func (t *Trainer) goBack(version loop.Version) *offer {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.version, t.restored, t.session.republish = version, version, false
	if t.offer != nil {
		t.offer.withdrawn = true
	}
	t.wake()
	return t.offer
}

// goOn has the loop go on from a restored version, and ends what was on offer before.
func (t *Trainer) goOn(p *publication, o *offer) {
	t.opt.Logf("trainer: %s went back to version %d, which is version %d now", p.Trainer, *p.RestoredFrom, p.Version)
	t.opt.OnRestored(p.Version) // first: the batch goes back into a queue that knows the version
	t.mu.Lock()
	defer t.mu.Unlock()
	if o != nil && !o.over {
		t.end(o, loop.NoVersion, port.StepReport{}, fmt.Errorf("trainer: lease %d: trainer %s went back to version %d: %w", o.lease, p.Trainer, *p.RestoredFrom, port.ErrLeaseReturned))
	}
}

// refusal says what a client did wrong, or has to do, of an error of the store of weights.
func refusal(err error) error {
	if r, ok := errors.AsType[*protocol.Refusal](err); ok {
		return r
	}
	if r, ok := errors.AsType[*weights.RefusedError](err); ok {
		return protocol.Refuse(protocol.CodeInvalid, "%v", r)
	}
	switch {
	case errors.Is(err, weights.ErrConflict):
		return protocol.Refuse(protocol.CodeConflict, "%v", err)
	case errors.Is(err, weights.ErrNotFound), errors.Is(err, weights.ErrNoWeights):
		return protocol.Refuse(protocol.CodeNotFound, "%v", err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return protocol.Refuse(protocol.CodeDiskFull, "%v", err)
	}
	return err
}
