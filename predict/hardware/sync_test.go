package hardware

import (
	"math"
	"strings"
	"testing"
)

// llama70 is the ladder's usual example: 70B in bf16, sharded over 8 GPUs.
func llama70(t *testing.T) Sync {
	t.Helper()
	m, err := ModelNamed("llama-3.1-70b")
	if err != nil {
		t.Fatal(err)
	}
	return Sync{Parameters: m.Parameters, Tensors: m.Tensors(), GatherGPUs: 8, Replicas: 2, ReplicaGPUs: 8}
}

// The usual ranges of the four parts for 70B; the wire in fp8 at 200 and 400 Gb/s.
func TestPartsOfASyncAreInTheirUsualRanges(t *testing.T) {
	s := llama70(t)
	s.WireBytes, s.BucketBytes, s.Replicas = 1, gib, 1
	for _, nic := range []struct {
		rate, least, most float64
	}{{nic200, 2.5, 3.5}, {nic400, 1.25, 1.75}} {
		s.NetworkBytesPerS = nic.rate
		times, err := s.Times()
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%.0f Gb/s: %+v", nic.rate*8/1e9, times)
		for _, part := range []struct {
			name        string
			value       float64
			least, most float64
		}{
			{"gather", times.Gather, 0.5, 1}, {"cast", times.Cast, 0.1, 0.32},
			{"transfer", times.Transfer, nic.least, nic.most}, {"reshard", times.Reshard, 0.5, 4},
		} {
			if part.value < part.least || part.value > part.most {
				t.Errorf("%s takes %.2f s, usually %g to %g", part.name, part.value, part.least, part.most)
			}
		}
	}
}

// The published ladder names no set-up; with two replicas, host staging at
// twice the wire's rate and one bucket of a GiB, each rung is within 0.1.
func TestLadder(t *testing.T) {
	rungs, err := ladder(llama70(t))
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range rungs {
		t.Logf("%-20s published %.2f ours %.3f (%.2f s)", r.Name, r.Published, r.Relative, r.Times.Critical)
		if math.Abs(r.Relative-r.Published) > 0.1 {
			t.Errorf("%s: %.2f of the naive broadcast, published %.2f", r.Name, r.Relative, r.Published)
		}
		if i > 0 && r.Relative >= rungs[i-1].Relative {
			t.Errorf("%s does not improve on %s", r.Name, rungs[i-1].Name)
		}
	}
}

func TestTransferByHand(t *testing.T) {
	s := Sync{Parameters: 10e9, Tensors: 100, NetworkBytesPerS: 10e9, NetworkUse: 1, LatencyS: 0.01, BucketBytes: 1e9, Replicas: 7}
	for _, c := range []struct {
		fanout Fanout
		want   float64
	}{
		{FanoutStar, 7*2 + 7*20*0.01},
		{FanoutTree, 2 + 20*0.01 + 3*(0.1+0.01)},
		{FanoutChain, 2 + 20*0.01 + 7*(0.1+0.01)},
		{FanoutDirect, 7*2 + 0.01},
	} {
		s.Fanout = c.fanout
		times, err := s.Times()
		if err != nil {
			t.Fatal(err)
		}
		if !near(times.Transfer, c.want) {
			t.Errorf("%s: %g s, by hand %g", c.fanout, times.Transfer, c.want)
		}
	}
}

// A star's time grows with the replicas, a tree's hardly: 2 → 64.
func TestFanoutsScale(t *testing.T) {
	grows := func(f Fanout) float64 {
		s := llama70(t)
		s.Fanout, s.BucketBytes = f, gib
		s.Replicas = 2
		few, _ := s.Times()
		s.Replicas = 64
		many, _ := s.Times()
		return many.Transfer / few.Transfer
	}
	if star := grows(FanoutStar); math.Abs(star-32) > 0.01 {
		t.Errorf("a star of 64 takes %g times that of 2, want 32", star)
	}
	if tree, chain := grows(FanoutTree), grows(FanoutChain); tree > 1.1 || chain > 2 || chain < tree {
		t.Errorf("64 replicas take %g times 2 in a tree, %g in a chain", tree, chain)
	}
}

func TestOverlapLeavesTheCriticalPath(t *testing.T) {
	s := llama70(t)
	s.Overlapped = true
	times, err := s.Times()
	if err != nil || times.Critical != 0 || times.Seconds <= 0 {
		t.Errorf("%+v (%v), want all of it off the critical path", times, err)
	}
}

func TestBadSyncs(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Sync)
		want   string
	}{
		{"no parameters", func(s *Sync) { s.Parameters = 0 }, "parameters is 0"},
		{"NaN network", func(s *Sync) { s.NetworkBytesPerS = math.NaN() }, "network in bytes/s is not a number"},
		{"negative network", func(s *Sync) { s.NetworkBytesPerS = -1 }, "network in bytes/s is -1"},
		{"absurd network", func(s *Sync) { s.NetworkBytesPerS = 1e15 }, "network in bytes/s is 1e+15"},
		{"unknown fan-out", func(s *Sync) { s.Fanout = "mesh" }, `fan-out "mesh"`},
		{"negative replicas", func(s *Sync) { s.Replicas = -2 }, "-2 replicas"},
		{"more than a whole delta", func(s *Sync) { s.DeltaShare = 2 }, "share of a delta is 2"},
		{"negative latency", func(s *Sync) { s.LatencyS = -1 }, "latency of a message is -1"},
		{"NaN bucket", func(s *Sync) { s.BucketBytes = math.NaN() }, "buckets of NaN"},
		{"NaN setup", func(s *Sync) { s.LoadSetupS = math.NaN() }, "need NaN s"},
	} {
		s := llama70(t)
		c.change(&s)
		if _, err := s.Times(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		if _, err := ladder(s); err == nil && c.name != "unknown fan-out" && c.name != "NaN bucket" {
			t.Errorf("%s: the ladder accepts it", c.name)
		}
	}
}

func TestSyncBetween(t *testing.T) {
	tr := trainer(t, "llama-3.1-70b", "h100-sxm", 64)
	r := Replica{Model: tr.Model, GPU: tr.GPU, GPUs: 8, WeightBytes: 1, MeanTokens: 1000}
	s := SyncBetween(tr, r, 4)
	times, err := s.Times()
	if err != nil {
		t.Fatal(err)
	}
	by := llama70(t)
	by.WireBytes, by.BucketBytes, by.Replicas = 1, gib, 4
	want, err := by.Times()
	if err != nil {
		t.Fatal(err)
	}
	if times != want {
		t.Errorf("%+v, put together by hand %+v", times, want)
	}
}
