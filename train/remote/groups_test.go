package remote

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// waiting are groups of a run, in their order; those that are nil have ended.
type waiting struct {
	mu      sync.Mutex
	groups  []*port.Group
	reads   int
	changed chan struct{}
}

func waitingOf(b port.Batch) *waiting {
	w := &waiting{changed: make(chan struct{})}
	for i := range b.Groups {
		w.groups = append(w.groups, &b.Groups[i])
	}
	return w
}

func (w *waiting) add(g *port.Group) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.groups = append(w.groups, g)
	close(w.changed)
	w.changed = make(chan struct{})
}

func (w *waiting) After(place int64, most int) (groups []port.Group, places []int64, changed <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for at := place; at < int64(len(w.groups)) && len(groups) < most; at++ {
		if g := w.groups[at]; g != nil {
			groups, places = append(groups, port.Group{ID: g.ID}), append(places, at+1)
		}
	}
	return groups, places, w.changed
}

func (w *waiting) Read(id loop.GroupID) (port.Group, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reads++
	for _, g := range w.groups {
		if g != nil && g.ID == id && g.Samples != nil {
			return *g, nil
		}
	}
	return port.Group{}, fmt.Errorf("group %d: %w", id, port.ErrNotReady)
}

// refer leases a share by reference.
func (r *rig) refer(trainer string, rank, world int) protocol.ReferencesReply {
	r.t.Helper()
	body, err := r.Lease(r.t.Context(), protocol.LeaseRequest{Trainer: trainer, Rank: rank, WorldSize: world, WaitS: 60, Form: protocol.FormReferences})
	r.must(err)
	var reply protocol.ReferencesReply
	r.must(json.Unmarshal(r.bytes(body), &reply))
	return reply
}

func (r *rig) bytes(body protocol.Body) []byte {
	r.t.Helper()
	var raw bytes.Buffer
	_, err := body.WriteTo(&raw)
	r.must(err)
	r.must(body.Close())
	if int64(raw.Len()) != body.Size() {
		r.t.Fatalf("%d bytes, Size says %d", raw.Len(), body.Size())
	}
	return raw.Bytes()
}

// fetch checks that a group's body is what a reference says.
func (r *rig) fetch(ref protocol.GroupReference) {
	r.t.Helper()
	body, err := r.Group(r.t.Context(), ref.Group)
	r.must(err)
	raw := r.bytes(body)
	if int64(len(raw)) != ref.Bytes || fmt.Sprintf("%x", sha256.Sum256(raw)) != ref.SHA256 {
		r.t.Fatalf("group %d has %d bytes, or others, than %+v", ref.Group, len(raw), ref)
	}
}

// Groups are announced before a batch is made of them, and named alike by the lease, of which each rank gets its share.
func TestReferences(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := groups(5, 1, 0, 5)
		w := waitingOf(b)
		r := started(t, func(o *Options) { o.Groups = w })
		said, err := r.Ready(t.Context(), protocol.ReadyRequest{})
		r.must(err)
		if len(said.Groups) != 5 {
			t.Fatalf("%d groups are announced, want 5", len(said.Groups))
		}
		for _, ref := range said.Groups {
			r.fetch(ref)
		}
		reads := w.reads
		out := r.train(b)
		var named []protocol.GroupReference
		for rank := range 2 {
			byReference := r.refer("a", rank, 2)
			whole := r.lease("a", rank, 2)
			if !slices.Equal(byReference.Stamps, whole.Stamps) || byReference.Tokens != whole.Tokens || byReference.Lease.Lease != 5 || byReference.Rank != rank {
				t.Errorf("the lease by reference is %+v, the other %+v", byReference.Lease, whole)
			}
			for i, ref := range byReference.References {
				if ref.GroupStamp != whole.Stamps[i] {
					t.Errorf("reference %+v, want the group %+v", ref, whole.Stamps[i])
				}
				r.fetch(ref)
			}
			named = append(named, byReference.References...)
		}
		slices.SortFunc(named, func(a, b protocol.GroupReference) int { return int(a.Group - b.Group) })
		if !slices.Equal(named, said.Groups) {
			t.Errorf("the leases name %+v, announced was %+v", named, said.Groups)
		}
		if w.reads != reads {
			t.Errorf("groups of the batch on offer are read again, %d times", w.reads-reads)
		}
		_, err = r.publish(ofLease("a", r.lease("a", 0, 2)), model(1, 2))
		r.must(err)
		r.trained(out)
		w.groups = nil
		_, err = r.Group(t.Context(), 1)
		r.refused(err, protocol.CodeNotFound, "group 1 cannot be fetched")
	})
}

// A call waits for a group, and goes on behind those that it has heard of. One that has ended is passed over, and a new
// process begins again.
func TestReadyGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := groups(5, 1, 0, 4)
		w := waitingOf(b)
		w.groups[1] = nil
		w.groups[2] = &port.Group{ID: 3} // ends before it is read
		last := w.groups[3]
		w.groups = w.groups[:3]
		r := started(t, func(o *Options) { o.Groups = w })
		next := func(after string, want ...loop.GroupID) string {
			t.Helper()
			said, err := r.Ready(t.Context(), protocol.ReadyRequest{After: after, WaitS: 20})
			r.must(err)
			var got []loop.GroupID
			for _, ref := range said.Groups {
				got = append(got, ref.Group)
			}
			if !slices.Equal(got, want) {
				t.Fatalf("after %q come the groups %v, want %v", after, got, want)
			}
			return said.Next
		}
		place := next("", 1)
		go func() {
			synctest.Wait()
			w.add(last)
		}()
		place = next(place, 4)
		next(place)
		next("another-9", 1, 4)
		for _, bad := range []string{"x", "a-b", "a--1"} {
			_, err := r.Ready(t.Context(), protocol.ReadyRequest{After: bad})
			r.refused(err, protocol.CodeInvalid, "next of the last answer")
		}
		r.EndRun()
		if _, err := r.Ready(t.Context(), protocol.ReadyRequest{WaitS: 20}); err != protocol.ErrRunEnded {
			t.Errorf("%v, want that the run has ended", err)
		}
	})
}

// Only so many groups are in memory at once. Who has to wait for long is told to come again.
func TestGroupsAreReadInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, func(o *Options) { o.Groups = waitingOf(groups(5, 1, 0, 1)) })
		var open []protocol.Body
		for range readsMost {
			body, err := r.Group(t.Context(), 1)
			r.must(err)
			open = append(open, body)
		}
		_, err := r.Group(t.Context(), 1)
		r.refused(err, protocol.CodeBusy, "at once")
		r.must(open[0].Close())
		body, err := r.Group(t.Context(), 1)
		r.must(err)
		open[0] = body
		for _, body := range open {
			r.must(body.Close())
		}
		for range 2 * readsMost { // one that is refused leaves no trace
			_, err := r.Group(t.Context(), 9)
			r.refused(err, protocol.CodeNotFound, "group 9")
		}
	})
}

// Forms that are not there are refused, and a validation batch by reference.
func TestFormsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, nil)
		_, err := r.Lease(t.Context(), protocol.LeaseRequest{Trainer: "a", Form: "parquet"})
		r.refused(err, protocol.CodeInvalid, "form is")
		_, err = r.Lease(t.Context(), protocol.LeaseRequest{Trainer: "a", Form: protocol.FormReferences, Kind: protocol.KindValidation})
		r.refused(err, protocol.CodeInvalid, "no references")
	})
}
