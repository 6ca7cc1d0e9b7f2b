package hardware

import (
	"cmp"
	"fmt"
	"math"
)

// Fanout is how weights spread from the trainer to the replicas.
type Fanout string

// The fan-outs. Tree and chain are pipelined by bucket.
const (
	FanoutStar   Fanout = "star"   // the trainer sends every replica its own copy: egress O(N)
	FanoutTree   Fanout = "tree"   // replicas pass buckets on, two each: egress O(1), depth O(log N)
	FanoutChain  Fanout = "chain"  // each passes on to the next: depth N
	FanoutDirect Fanout = "direct" // every train GPU writes its shards into the engines that need them, over all cards at once
)

// Sync is a weight sync: gather, cast, transfer, reshard. The zero value of a
// figure takes the default of [Sync.WithDefaults].
type Sync struct {
	// Parameters that are sent.
	Parameters float64
	// Tensors they come in ([Model.Tensors]): each tensor that is handled by itself pays its latency. Default 1000.
	Tensors float64
	// TrainBytes and WireBytes are the bytes of a parameter at the trainer and on the wire. Default 2, and as at the trainer.
	TrainBytes, WireBytes float64
	// DeltaShare is the share of the bytes that is sent; 1 or 0 for all of them.
	DeltaShare float64

	// GatherGPUs is over how many GPUs shards are assembled; 0 or 1 for none (pure data or tensor parallelism, or senders that keep their shards).
	GatherGPUs int
	// Replicas that receive, of ReplicaGPUs each. Default 1 and 8.
	Replicas, ReplicaGPUs int
	// Fanout to them. Default tree.
	Fanout Fanout
	// Senders and Receivers are the network cards in use at the trainer and at each replica. Default 1 and 1.
	Senders, Receivers int
	// NetworkBytesPerS is one card's rate, one way, and NetworkUse the share reached. Default 50e9 and 0.9.
	NetworkBytesPerS, NetworkUse float64
	// LatencyS is what a message costs however small, its announcement included. Default 0.001.
	LatencyS float64
	// BucketBytes is the size of a message that fuses tensors; 0 sends each tensor by itself.
	BucketBytes float64
	// StagingBytesPerS is the rate of copies through host memory on either end, paid beside the wire; 0 for zero-copy.
	StagingBytesPerS float64
	// LinkBytesPerS is the link inside a node, one way, and LinkUse the share reached. Default 450e9 and 0.6.
	LinkBytesPerS, LinkUse float64
	// MemoryBytesPerS is a GPU's memory bandwidth. Default 3.35e12.
	MemoryBytesPerS float64
	// GatherLatencyS is what gathering one tensor costs beyond its bytes. Default 0.00025.
	GatherLatencyS float64
	// ScaleLatencyS is what one tensor's scale costs where the cast needs a maximum. Default 0.0003.
	ScaleLatencyS float64
	// LoadLatencyS is what loading one tensor into an engine costs. Default 0.000015.
	LoadLatencyS float64
	// LoadSetupS is what an engine needs however little it loads: to agree, and to make its weights usable. Negative means none. Default 1.
	LoadSetupS float64
	// Overlapped says that engines generate and the trainer trains meanwhile.
	Overlapped bool
}

// SyncBetween is a usual sync from a trainer to so many such replicas. Weights are
// gathered inside a node, cast to the engines' type, and broadcast without copies
// through host memory. The broadcast is a pipelined tree in buckets of a GiB over
// one network card.
func SyncBetween(t Trainer, r Replica, replicas int) Sync {
	r = r.WithDefaults()
	return Sync{
		Parameters: r.Model.Parameters, Tensors: r.Model.Tensors(), TrainBytes: 2, WireBytes: r.WeightBytes,
		GatherGPUs: min(t.GPUs, max(t.GPU.NodeGPUs, 1)), Replicas: replicas, ReplicaGPUs: r.GPUs, Fanout: FanoutTree,
		NetworkBytesPerS: r.GPU.NICBytesPerS, BucketBytes: gib, LinkBytesPerS: t.GPU.LinkBytesPerS, MemoryBytesPerS: t.GPU.MemoryBytesPerS,
	}
}

// SyncTimes is what a sync takes, in seconds.
type SyncTimes struct {
	Gather, Cast, Transfer, Reshard float64
	// Seconds is their sum, τ_S.
	Seconds float64
	// Critical is the part on the critical path: none of it where overlapped.
	Critical float64
}

// WithDefaults returns a copy with every unset figure filled in.
func (s Sync) WithDefaults() Sync {
	for _, d := range []struct {
		field *float64
		value float64
	}{
		{&s.Tensors, 1000}, {&s.TrainBytes, 2}, {&s.DeltaShare, 1}, {&s.NetworkBytesPerS, nic400}, {&s.NetworkUse, 0.9},
		{&s.LatencyS, 0.001}, {&s.LinkBytesPerS, 450e9}, {&s.LinkUse, 0.6}, {&s.MemoryBytesPerS, 3.35e12},
		{&s.GatherLatencyS, 0.00025}, {&s.ScaleLatencyS, 0.0003}, {&s.LoadLatencyS, 0.000015}, {&s.LoadSetupS, 1},
	} {
		*d.field = cmp.Or(*d.field, d.value)
	}
	s.WireBytes = cmp.Or(s.WireBytes, s.TrainBytes)
	for _, d := range []struct {
		field *int
		value int
	}{{&s.Replicas, 1}, {&s.ReplicaGPUs, 8}, {&s.Senders, 1}, {&s.Receivers, 1}} {
		*d.field = cmp.Or(*d.field, d.value)
	}
	s.Fanout = cmp.Or(s.Fanout, FanoutTree)
	return s
}

// Validate says what is wrong with a sync.
func (s Sync) Validate() error {
	s = s.WithDefaults()
	for _, amount := range []struct {
		what        string
		value, most float64
	}{
		{"parameters", s.Parameters, 1e14}, {"tensors", s.Tensors, 1e8}, {"bytes of a parameter at the trainer", s.TrainBytes, 8},
		{"bytes of a parameter on the wire", s.WireBytes, 8}, {"network in bytes/s", s.NetworkBytesPerS, 1e13},
		{"link in bytes/s", s.LinkBytesPerS, 1e15}, {"memory bandwidth in bytes/s", s.MemoryBytesPerS, 1e15},
	} {
		if err := positive("sync", amount.what, amount.value, amount.most); err != nil {
			return err
		}
	}
	for _, part := range []struct {
		what  string
		value float64
	}{{"network use", s.NetworkUse}, {"link use", s.LinkUse}, {"share of a delta", s.DeltaShare}} {
		if err := share("sync", part.what, part.value); err != nil {
			return err
		}
	}
	for _, delay := range []struct {
		what  string
		value float64
	}{{"latency of a message", s.LatencyS}, {"latency of gathering a tensor", s.GatherLatencyS}, {"latency of a scale", s.ScaleLatencyS}, {"latency of loading a tensor", s.LoadLatencyS}} {
		if !(delay.value >= 0 && delay.value <= 10) {
			return fmt.Errorf("sync: %s is %g s: expected 0 to 10", delay.what, delay.value)
		}
	}
	if !(s.LoadSetupS <= 1e4) {
		return fmt.Errorf("sync: engines need %g s to load nothing: expected at most 1e4", s.LoadSetupS)
	}
	if !(s.BucketBytes >= 0 && s.BucketBytes <= 1e13) || !(s.StagingBytesPerS >= 0 && s.StagingBytesPerS <= 1e13) {
		return fmt.Errorf("sync: buckets of %g bytes, staging at %g bytes/s: expected 0 to 1e13", s.BucketBytes, s.StagingBytesPerS)
	}
	if s.Replicas < 0 || s.ReplicaGPUs < 0 || s.Senders < 0 || s.Receivers < 0 || s.GatherGPUs < 0 {
		return fmt.Errorf("sync: %d replicas of %d GPUs, %d senders, %d receivers, shards of %d GPUs: none can be negative", s.Replicas, s.ReplicaGPUs, s.Senders, s.Receivers, s.GatherGPUs)
	}
	switch s.Fanout {
	case FanoutStar, FanoutTree, FanoutChain, FanoutDirect:
		return nil
	}
	return fmt.Errorf("sync: fan-out %q is not known: expected star, tree, chain or direct", s.Fanout)
}

// Times predicts a sync.
func (s Sync) Times() (SyncTimes, error) {
	if err := s.Validate(); err != nil {
		return SyncTimes{}, err
	}
	s = s.WithDefaults()
	t := SyncTimes{Gather: s.gather(), Cast: s.cast(), Transfer: s.transfer(), Reshard: s.reshard()}
	t.Seconds = t.Gather + t.Cast + t.Transfer + t.Reshard
	if !s.Overlapped {
		t.Critical = t.Seconds
	}
	return t, nil
}

// wire is the bytes one copy takes on the wire.
func (s Sync) wire() float64 { return s.Parameters * s.WireBytes * s.DeltaShare }

// gather is an all-gather of shards over the node's link, tensor by tensor.
func (s Sync) gather() float64 {
	if s.GatherGPUs <= 1 {
		return 0
	}
	n := float64(s.GatherGPUs)
	return s.Parameters*s.TrainBytes*(n-1)/n/(s.LinkBytesPerS*s.LinkUse) + s.Tensors*s.GatherLatencyS
}

// cast is a pass for the maxima and one that writes, and each tensor's scale:
// only where the wire's number is smaller than the trainer's. Direct senders
// each cast what they send.
func (s Sync) cast() float64 {
	if s.WireBytes >= s.TrainBytes {
		return 0
	}
	n, tensors := math.Max(float64(s.GatherGPUs), 1), s.Tensors
	if s.Fanout == FanoutDirect {
		n = float64(s.Senders)
		tensors /= n
	}
	moved := s.Parameters * (2*s.TrainBytes + s.WireBytes)
	return moved/s.MemoryBytesPerS/n + tensors*s.ScaleLatencyS
}

// transfer is the wire's time: every copy by itself from a star, pipelined
// copies otherwise: bytes/bw + depth·(bucket/bw + latency), and each message's latency.
func (s Sync) transfer() float64 {
	bytes, n := s.wire(), float64(s.Replicas)
	width := math.Min(float64(s.Senders), float64(s.Receivers))
	rate := s.streamRate()
	messages, bucket := s.messages()
	switch s.Fanout {
	case FanoutDirect:
		lanes := math.Min(float64(s.Senders), float64(s.Receivers)*n)
		return bytes*n/(rate*lanes) + s.LatencyS
	case FanoutStar:
		lanes := math.Min(float64(s.Senders), float64(s.Receivers)*n)
		return bytes*n/(rate*lanes) + messages*n*s.LatencyS
	}
	depth := n
	if s.Fanout == FanoutTree {
		depth = math.Ceil(math.Log2(n + 1))
	}
	return bytes/(rate*width) + messages*s.LatencyS + depth*(bucket/(rate*width)+s.LatencyS)
}

// streamRate is what one card carries, staging copies included.
func (s Sync) streamRate() float64 {
	rate := s.NetworkBytesPerS * s.NetworkUse
	if s.StagingBytesPerS == 0 {
		return rate
	}
	return 1 / (1/rate + 2/s.StagingBytesPerS)
}

// messages is how many are sent, and how large one is.
func (s Sync) messages() (count, bytes float64) {
	if s.BucketBytes == 0 {
		return s.Tensors, s.wire() / s.Tensors
	}
	bucket := math.Min(s.BucketBytes, s.wire())
	return math.Ceil(s.wire() / bucket), bucket
}

// reshard is what a replica does with what it received: a shuffle in memory, a
// small exchange, each tensor's loading, and making the whole usable. Direct
// writes land where they belong: nothing is left to do.
func (s Sync) reshard() float64 {
	setup := math.Max(s.LoadSetupS, 0)
	if s.Fanout == FanoutDirect {
		return setup
	}
	n := float64(s.ReplicaGPUs)
	bytes := s.wire()
	exchange := 0.0
	if n > 1 {
		exchange = bytes * (n - 1) / n / n / (s.LinkBytesPerS * s.LinkUse)
	}
	return 2*bytes/n/s.MemoryBytesPerS + exchange + s.Tensors*s.LoadLatencyS + setup
}
