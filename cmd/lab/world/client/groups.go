package client

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"
)

// reference names the body of a finished group.
type reference struct {
	GroupStamp
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

func (r reference) holds(body []byte) bool {
	hash := sha256.Sum256(body)
	return int64(len(body)) == r.Bytes && hex.EncodeToString(hash[:]) == r.SHA256
}

// groupFetches is how often a group is fetched whose hash is another than its reference's.
const groupFetches = 2

// groups has bodies of groups that were announced, by their hash.
type groups struct {
	mu     sync.Mutex
	bodies map[string][]byte
	began  bool
}

func (g *groups) find(r reference) []byte {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.bodies[r.SHA256]
}

func (g *groups) put(r reference, body []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.bodies == nil {
		g.bodies = map[string][]byte{}
	}
	g.bodies[r.SHA256] = body
}

func (g *groups) drop(all []reference) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range all {
		delete(g.bodies, r.SHA256)
	}
}

// prefetch fetches groups that are announced, until the run ends or the transport stops. What fails is no loss.
func (t *Trainer) prefetch(ctx context.Context) {
	after := ""
	for !t.transport.stopped.isSet() && ctx.Err() == nil {
		var reply struct {
			Groups []reference `json:"groups"`
			Next   string      `json:"next"`
		}
		err := t.transport.post(ctx, call{path: "/api/v1/groups/ready", message: map[string]any{"after": after, "wait_s": leaseWait.Seconds()}, limit: leaseWait + time.Minute}, &reply)
		if IsKind(err, RunEnded) {
			return
		}
		if err != nil {
			t.transport.stopped.wait(ctx, 500*time.Millisecond)
			continue
		}
		after = reply.Next
		for _, r := range reply.Groups {
			if t.groups.find(r) != nil {
				continue
			}
			if body, err := t.group(ctx, r); err == nil {
				t.groups.put(r, body)
			}
		}
	}
}

// group fetches the body of a group. One whose hash is another is fetched once more.
func (t *Trainer) group(ctx context.Context, r reference) ([]byte, error) {
	for range groupFetches {
		answer, err := t.transport.do(ctx, call{method: "GET", path: fmt.Sprintf("/api/v1/groups/%d", r.Group), limit: time.Minute})
		if err != nil {
			return nil, err
		}
		if r.holds(answer.body) {
			return answer.body, nil
		}
	}
	return nil, refuse(Internal, "group %d came %d times with other bytes than its reference says", r.Group, groupFetches)
}

// byReference reads a lease by reference: a batch without its arrays.
func byReference(body []byte) (*Batch, error) {
	b := &Batch{ForwardVersion: -1, StepVersion: -1, held: -1}
	var said struct {
		References []reference `json:"references"`
	}
	if err := errors.Join(json.Unmarshal(body, &b.Metadata), json.Unmarshal(body, &said)); err != nil {
		return nil, refuse(Invalid, "the lease lists no references to groups that can be read: %v", err)
	}
	b.references = said.References
	if len(b.references) != len(b.Stamps) {
		return nil, refuse(Invalid, "the lease has %d references to its %d groups", len(b.references), len(b.Stamps))
	}
	for i, r := range b.references {
		if r.Group != b.Stamps[i].Group {
			return nil, refuse(Invalid, "reference %d is to group %d, want %d", i, r.Group, b.Stamps[i].Group)
		}
	}
	return b, nil
}

// gather brings the groups of a batch that is kept already. Without one of them the lease is lost: it returns nil. The
// same lease without its group is an error.
func (t *Trainer) gather(ctx context.Context, b *Batch) (*Batch, error) {
	err := t.pack(ctx, b)
	if err == nil {
		return b, nil
	}
	b.renewal.stop(ctx)
	t.open = nil
	name := [2]int64{b.Lease, b.Attempt}
	if IsKind(err, NotFound) && t.gone != name {
		t.gone = name
		return nil, nil
	}
	if ctx.Err() == nil {
		patience := time.Second
		message := map[string]any{"trainer": t.name, "attempt": b.Attempt, "reason": "its groups did not come whole", "failed": false}
		_ = t.transport.post(ctx, call{path: fmt.Sprintf("/api/v1/batches/%d/nack", b.Lease), message: message, patience: &patience}, nil)
	}
	return nil, err
}

// pack joins the arrays of a batch's groups.
func (t *Trainer) pack(ctx context.Context, b *Batch) error {
	b.Offsets = []int64{0}
	for _, r := range b.references {
		body := t.groups.find(r)
		if body == nil {
			var err error
			if body, err = t.group(ctx, r); err != nil {
				return err
			}
		}
		g, err := parse(body)
		if err != nil {
			return err
		}
		for _, id := range g.Groups {
			if id != r.Group || g.Rollouts != r.Rollouts {
				return refuse(Invalid, "the body of group %d is another group's, or not whole", r.Group)
			}
		}
		begin := int64(len(b.Tokens))
		for _, at := range g.Offsets[1:] {
			b.Offsets = append(b.Offsets, begin+at)
		}
		b.Tokens, b.Mask = append(b.Tokens, g.Tokens...), append(b.Mask, g.Mask...)
		b.Logprobs, b.Versions = append(b.Logprobs, g.Logprobs...), append(b.Versions, g.Versions...)
		b.Advantages, b.Rewards = append(b.Advantages, g.Advantages...), append(b.Rewards, g.Rewards...)
		b.Groups, b.Samples = append(b.Groups, g.Groups...), append(b.Samples, g.Samples...)
	}
	return b.check()
}
