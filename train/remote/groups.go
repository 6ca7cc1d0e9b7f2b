package remote

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/train/batch"
)

// Groups are those of the run that can be trained, or are in training. Any goroutine may call its methods.
type Groups interface {
	// After lists those that became ready after a place in their order, at most so many, each with its place and without
	// samples. Places count from 1 with every process. The channel is closed when another is ready.
	After(place int64, most int) (groups []port.Group, places []int64, changed <-chan struct{})
	// Read reads one with its samples. An error that wraps port.ErrNotReady says that the group is none of them.
	Read(id loop.GroupID) (port.Group, error)
}

// Bounds of groups by reference.
const (
	// readyMost is how many groups one answer lists.
	readyMost = 128
	// readsMost is how many groups are in memory at once because somebody fetches them or asks for their hash.
	readsMost = 8
	// readWait is how long a call waits for its turn to read a group.
	readWait = 10 * time.Second
)

// references has what is known of the groups that somebody asked for.
type references struct {
	// process tells places of this process from those of others.
	process string
	// reads has an element for each group that is in memory.
	reads chan struct{}

	mu sync.Mutex
	// known has the references of groups, those of newest in known and those before in older: what is not asked for any
	// more goes.
	known, older map[loop.GroupID]protocol.GroupReference
}

// knownMost is how many references are kept at least.
const knownMost = 1 << 14

func (r *references) init() {
	r.process, r.reads = rand.Text(), make(chan struct{}, readsMost)
	r.known = make(map[loop.GroupID]protocol.GroupReference)
}

func (r *references) find(id loop.GroupID) (protocol.GroupReference, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if found, ok := r.known[id]; ok {
		return found, true
	}
	found, ok := r.older[id]
	return found, ok
}

func (r *references) add(found protocol.GroupReference) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.known) >= knownMost {
		r.known, r.older = make(map[loop.GroupID]protocol.GroupReference), r.known
	}
	r.known[found.Group] = found
}

// reference returns the reference to a group, which read returns.
func (t *Trainer) reference(id loop.GroupID, read func() (port.Group, error)) (protocol.GroupReference, error) {
	if found, ok := t.refs.find(id); ok {
		return found, nil
	}
	g, err := read()
	if err != nil {
		return protocol.GroupReference{}, err
	}
	body, err := batch.GroupBody(g, t.batchOptions())
	if err != nil {
		return protocol.GroupReference{}, err
	}
	found, err := body.Reference()
	if err == nil {
		t.refs.add(found)
	}
	return found, err
}

// references makes a rank's share by reference.
func (t *Trainer) references(s *share) (protocol.Body, error) {
	lease := s.Lease()
	reply := protocol.ReferencesReply{Lease: lease, References: make([]protocol.GroupReference, 0, len(lease.Stamps))}
	for _, stamp := range lease.Stamps {
		found, err := t.reference(stamp.Group, func() (port.Group, error) {
			g, _ := s.o.batch.Find(stamp.Group)
			return g, nil
		})
		if err != nil {
			return nil, err
		}
		reply.References = append(reply.References, found)
	}
	text, err := json.Marshal(reply)
	if err != nil {
		return nil, fmt.Errorf("trainer: %w", err)
	}
	return &listed{share: s, text: text}, nil
}

// listed is a share by reference; its way to the rank counts as words of it.
type listed struct {
	*share
	text []byte
}

func (l *listed) Size() int64 { return int64(len(l.text)) }

func (l *listed) WriteTo(w io.Writer) (int64, error) {
	n, err := (&heard{l.share, w}).Write(l.text)
	return int64(n), err
}

// Ready implements api.Trainers.
func (t *Trainer) Ready(ctx context.Context, req protocol.ReadyRequest) (protocol.ReadyReply, error) {
	if !(req.WaitS >= 0 && req.WaitS <= WaitMax) {
		return protocol.ReadyReply{}, protocol.Refuse(protocol.CodeInvalid, "wait_s is %g, want from 0 to %d", req.WaitS, WaitMax)
	}
	place, err := t.refs.place(req.After)
	if err != nil {
		return protocol.ReadyReply{}, err
	}
	timer := time.NewTimer(seconds(req.WaitS))
	defer timer.Stop()
	for {
		reply, changed, err := t.readyAfter(ctx, &place)
		if err != nil || len(reply.Groups) > 0 {
			return reply, err
		}
		select {
		case <-changed.group:
		case <-changed.phase:
		case <-timer.C:
			return reply, nil
		case <-ctx.Done():
			return protocol.ReadyReply{}, context.Cause(ctx)
		}
	}
}

// changes are closed when another look is worth while.
type changes struct{ group, phase <-chan struct{} }

// readyAfter lists references to the groups after a place, which it moves on.
func (t *Trainer) readyAfter(ctx context.Context, place *int64) (protocol.ReadyReply, changes, error) {
	t.mu.Lock()
	changed, err := changes{phase: t.changed}, t.serving()
	if t.phase == runEnded {
		err = protocol.ErrRunEnded
	}
	t.mu.Unlock()
	reply := protocol.ReadyReply{Groups: []protocol.GroupReference{}}
	if err != nil {
		return reply, changed, err
	}
	var groups []port.Group
	var places []int64
	if t.opt.Groups != nil {
		groups, places, changed.group = t.opt.Groups.After(*place, readyMost)
	}
	for i := range groups {
		found, err := t.announced(ctx, groups[i].ID)
		if err != nil && !errors.Is(err, port.ErrNotReady) {
			if len(reply.Groups) > 0 {
				break // the next call says so
			}
			return reply, changed, err
		}
		if *place = places[i]; err == nil {
			reply.Groups = append(reply.Groups, found)
		}
	}
	reply.Next = t.refs.process + "-" + strconv.FormatInt(*place, 10)
	return reply, changed, nil
}

// announced returns the reference to a group that waits.
func (t *Trainer) announced(ctx context.Context, id loop.GroupID) (protocol.GroupReference, error) {
	return t.reference(id, func() (port.Group, error) {
		if err := t.refs.begin(ctx); err != nil {
			return port.Group{}, err
		}
		defer t.refs.end()
		return t.opt.Groups.Read(id)
	})
}

// place reads a place that Next gave; one of another process is the beginning.
func (r *references) place(after string) (int64, error) {
	process, number, _ := strings.Cut(after, "-")
	n, err := strconv.ParseInt(number, 10, 64)
	switch {
	case after == "":
		return 0, nil
	case err != nil || n < 0:
		return 0, protocol.Refuse(protocol.CodeInvalid, "after is %.60q: want next of the last answer, or nothing for all groups", after)
	case process != r.process:
		return 0, nil
	}
	return n, nil
}

// begin waits until a group may be read.
func (r *references) begin(ctx context.Context) error {
	timer := time.NewTimer(readWait)
	defer timer.Stop()
	select {
	case r.reads <- struct{}{}:
		return nil
	case <-timer.C:
		return protocol.Refuse(protocol.CodeBusy, "%d groups are being sent already, the most at once: try again in a moment", readsMost)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (r *references) end() { <-r.reads }

// Group implements api.Trainers.
func (t *Trainer) Group(ctx context.Context, id loop.GroupID) (protocol.Body, error) {
	t.mu.Lock()
	err := t.serving()
	var g port.Group
	found := false
	if t.offer != nil {
		g, found = t.offer.batch.Find(id)
	}
	t.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if err := t.refs.begin(ctx); err != nil {
		return nil, err
	}
	body, err := t.groupBody(id, g, found)
	if err != nil {
		t.refs.end()
		return nil, err
	}
	return &groupBody{Body: body, refs: &t.refs}, nil
}

// groupBody makes the body of a group, which it reads unless it was found.
func (t *Trainer) groupBody(id loop.GroupID, g port.Group, found bool) (*batch.Body, error) {
	if !found {
		err := port.ErrNotReady
		if t.opt.Groups != nil {
			g, err = t.opt.Groups.Read(id)
		}
		if errors.Is(err, port.ErrNotReady) {
			return nil, protocol.Refuse(protocol.CodeNotFound, "group %d cannot be fetched: it is not finished, or was trained or dropped, or is of another run", id).With("group", id)
		}
		if err != nil {
			return nil, err
		}
	}
	return batch.GroupBody(g, t.batchOptions())
}

// groupBody is a group's body on its way.
type groupBody struct {
	*batch.Body
	refs *references
}

// Close lets another group be read.
func (b *groupBody) Close() error {
	b.refs.end()
	return b.Body.Close()
}
