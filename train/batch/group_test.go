package batch

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/train/batch/batchtest"
)

// packed is a share made of the bodies of its groups, as a client makes it.
func packed(bodies []*batchtest.Tensors, agents []string, spoken, branched bool) *batchtest.Tensors {
	t, rollouts := &batchtest.Tensors{Offsets: []int64{0}}, int32(0)
	for _, b := range bodies {
		begin := int64(len(t.Tokens))
		for _, at := range b.Offsets[1:] {
			t.Offsets = append(t.Offsets, begin+at)
		}
		t.Tokens, t.LossMask = append(t.Tokens, b.Tokens...), append(t.LossMask, b.LossMask...)
		t.Logprobs, t.Versions = append(t.Logprobs, b.Logprobs...), append(t.Versions, b.Versions...)
		t.Advantages, t.Rewards = append(t.Advantages, b.Advantages...), append(t.Rewards, b.Rewards...)
		t.Groups, t.Samples = append(t.Groups, b.Groups...), append(t.Samples, b.Samples...)
		last := int32(-1)
		for i := range b.Rewards {
			rollout := int32(i)
			if b.Rollout != nil {
				rollout = b.Rollout[i]
			}
			last = max(last, rollout)
			if branched {
				t.Rollout = append(t.Rollout, rollouts+rollout)
			}
			if spoken {
				code := int32(-1)
				if b.Agents != nil && b.Agents[i] >= 0 {
					code = int32(slices.Index(agents, b.Lease.Agents[b.Agents[i]]))
				}
				t.Agents = append(t.Agents, code)
			}
		}
		rollouts += last + 1
	}
	return t
}

// The bodies of a share's groups hold what the body of the share holds, whatever batch and share the groups are in.
func TestGroupBodiesMakeUpAShare(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 50))
		b, store := draw(rng, 1+rng.IntN(6), 4, 30), memory{}
		if seed%2 == 0 {
			branch(rng, b)
		}
		if seed%3 == 0 {
			see(b, store)
			give(rng, b, store)
		}
		if seed%5 == 0 {
			for i := range b.Groups[0].Samples {
				s := &b.Groups[0].Samples[i]
				s.Agents = nil
				for range s.Sequences() {
					s.Agents = append(s.Agents, port.Agent{Name: []string{"planner", "coder"}[rng.IntN(2)]})
				}
			}
		}
		o := Options{Vocabulary: vocabulary, NormalizeStd: seed%4 == 0}
		for g := range b.Groups {
			b.Groups[g].ReadyVersion = b.Version
		}
		p, err := New(b, o)
		if err != nil {
			t.Fatal(seed, err)
		}
		for ranks := 1; ranks <= 3; ranks++ {
			for rank := range ranks {
				want := share(t, p, rank, ranks)
				var bodies []*batchtest.Tensors
				for _, stamp := range want.Lease.Stamps {
					bodies = append(bodies, groupOf(t, p, stamp, o))
				}
				got := packed(bodies, want.Lease.Agents, len(want.Lease.Agents) > 0, p.branched)
				if got.Rollout == nil && want.Rollout != nil {
					got.Rollout = []int32{}
				}
				got.Lease = want.Lease
				if len(bodies) > 0 && (!same(got, want) || !slices.Equal(got.Agents, want.Agents)) || len(bodies) == 0 && len(want.Tokens) > 0 {
					t.Fatalf("seed %d, rank %d of %d: the groups make up\n%+v\nwant\n%+v", seed, rank, ranks, got, want)
				}
			}
		}
	}
}

// groupOf is the body of a group of a batch, which must be that of the group before it was in any.
func groupOf(t *testing.T, p *Batch, stamp protocol.GroupStamp, o Options) *batchtest.Tensors {
	t.Helper()
	g, ok := p.Find(stamp.Group)
	if !ok {
		t.Fatalf("no group %d", stamp.Group)
	}
	body, err := GroupBody(g, o)
	if err != nil {
		t.Fatal(err)
	}
	var raw bytes.Buffer
	if _, err := body.WriteTo(&raw); err != nil {
		t.Fatal(err)
	}
	found, err := body.Reference()
	if err != nil || found.GroupStamp != stamp || found.Bytes != int64(raw.Len()) || found.SHA256 != fmt.Sprintf("%x", sha256.Sum256(raw.Bytes())) {
		t.Fatalf("the reference is %+v, %v: want %+v and the %d bytes' hash", found, err, stamp, raw.Len())
	}
	tensors, err := batchtest.Decode(raw.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if len(tensors.Lease.Channels)+len(tensors.Lease.Media) > 0 {
		t.Fatal("the body of a group names what the store may lose")
	}
	return tensors
}
