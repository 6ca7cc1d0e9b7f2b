package remote

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/store/weights"
	"github.com/headway-rl/headway/train/batch/batchtest"
)

// rig is a trainer over a real store of weights, with what a runtime would be told.
type rig struct {
	*Trainer
	t     *testing.T
	store *weights.Store
	mu    sync.Mutex
	ready int
	went  []loop.Version
}

func newRig(t *testing.T, change func(*Options)) *rig {
	t.Helper()
	store, err := weights.Open(t.TempDir(), weights.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return rigOn(t, store, change)
}

// rigOn is a new process on what an earlier one left.
func rigOn(t *testing.T, store *weights.Store, change func(*Options)) *rig {
	t.Helper()
	r := &rig{t: t, store: store}
	began := time.Now()
	opt := Options{Weights: store, Clock: func() int64 { return int64(time.Since(began)) }, Vocabulary: 32, Run: "run-7", Steps: 40,
		Initial: func(context.Context) error { return r.write(0, 0) },
		OnReady: func() { r.mu.Lock(); r.ready++; r.mu.Unlock() },
		OnRestored: func(v loop.Version) {
			r.mu.Lock()
			r.went = append(r.went, v)
			r.mu.Unlock()
		},
	}
	if change != nil {
		change(&opt)
	}
	var err error
	if r.Trainer, err = New(opt); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// started is a rig whose run stands at version 0.
func started(t *testing.T, change func(*Options)) *rig {
	t.Helper()
	r := newRig(t, change)
	r.must(r.Initialize(t.Context()))
	return r
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) readies() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ready
}

// write publishes a version as a trainer inside the process would.
func (r *rig) write(version loop.Version, lease loop.LeaseID) error {
	return r.store.Publish(context.Background(), port.Publication{Version: version, Lease: lease,
		Model:     []port.Tensor{{Name: "w", Shape: []int{2}, Data: []float32{float32(version), 1}}},
		Optimizer: []port.Tensor{{Name: "m", Shape: []int{1}, Data: []float32{1}}}})
}

// model is a file with the tensor w.
func model(values ...float32) []byte {
	raw, err := weights.AppendHeader(nil, []weights.Entry{{Name: "w", DType: weights.F32, Shape: []int{len(values)}}})
	if err != nil {
		panic(err)
	}
	for _, v := range values {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
	}
	return raw
}

// groups is a batch of n groups of two rollouts from a version.
func groups(lease loop.LeaseID, attempt int32, version loop.Version, n int) port.Batch {
	b := port.Batch{Lease: lease, Attempt: attempt, Version: version}
	for g := range n {
		group := port.Group{ID: loop.GroupID(g + 1), StartVersion: version, ReadyVersion: version, Rollouts: 2}
		for i := range 2 {
			group.Samples = append(group.Samples, port.Sample{ID: port.RolloutID{Group: group.ID, Sample: int32(i), Attempt: 1},
				Tokens: []int32{1, 2, 3}, LossMask: []uint8{0, 1, 1}, Logprobs: []float32{0, -1, -2}, Versions: []loop.Version{-1, version, version}, Reward: float32(i)})
		}
		b.Groups = append(b.Groups, group)
	}
	return b
}

// outcome is what Train returned.
type outcome struct {
	report port.StepReport
	err    error
}

func (r *rig) train(b port.Batch) <-chan outcome { return r.trainUnder(r.t.Context(), b) }

func (r *rig) trainUnder(ctx context.Context, b port.Batch) <-chan outcome {
	out := make(chan outcome, 1)
	go func() {
		report, err := r.Train(ctx, b)
		out <- outcome{report, err}
	}()
	return out
}

// committed fails unless Train has returned without an error.
func (r *rig) trained(out <-chan outcome) port.StepReport {
	r.t.Helper()
	o := <-out
	if o.err != nil {
		r.t.Fatalf("Train: %v", o.err)
	}
	return o.report
}

// returned fails unless Train has given the batch back.
func (r *rig) returned(out <-chan outcome) {
	r.t.Helper()
	if o := <-out; !errors.Is(o.err, port.ErrLeaseReturned) {
		r.t.Fatalf("Train: %v, want the lease returned", o.err)
	}
}

// lease takes the share of a rank, waiting for it.
func (r *rig) lease(trainer string, rank, world int) protocol.Lease {
	r.t.Helper()
	l := r.tryLease(protocol.LeaseRequest{Trainer: trainer, Rank: rank, WorldSize: world, WaitS: 60})
	if l == nil {
		r.t.Fatalf("rank %d of %s got no batch", rank, trainer)
	}
	return *l
}

// tryLease returns nil where no batch came in time.
func (r *rig) tryLease(req protocol.LeaseRequest) *protocol.Lease {
	r.t.Helper()
	body, err := r.Lease(r.t.Context(), req)
	r.must(err)
	if body == nil {
		return nil
	}
	var raw bytes.Buffer
	_, err = body.WriteTo(&raw)
	r.must(err)
	r.must(body.Close())
	tensors, err := batchtest.Decode(raw.Bytes())
	r.must(err)
	return &tensors.Lease
}

// publication of one file that makes the version after a lease's.
func ofLease(trainer string, l protocol.Lease) protocol.PublishRequest {
	return protocol.PublishRequest{Trainer: trainer, Lease: l.Lease, Attempt: l.Attempt, Version: l.Version + 1, Kind: "full", BaseVersion: -1,
		ForwardVersion: l.Version, StepVersion: l.Version, Files: []protocol.PublishFile{{Name: "model.safetensors"}}}
}

// publish sends one file.
func (r *rig) publish(req protocol.PublishRequest, content []byte) (protocol.PublishReply, error) {
	return r.Publish(r.t.Context(), req, files(content))
}

// files hands out model.safetensors.
func files(content []byte) func() (string, io.Reader, error) {
	sent := false
	return func() (string, io.Reader, error) {
		if sent {
			return "", nil, io.EOF
		}
		sent = true
		return "model.safetensors", bytes.NewReader(content), nil
	}
}

// refused fails unless err is a refusal of that code whose message has the words in it.
func (r *rig) refused(err error, code protocol.Code, words string) {
	r.t.Helper()
	refusal, ok := errors.AsType[*protocol.Refusal](err)
	if !ok || refusal.Code != code || !bytes.Contains([]byte(refusal.Message), []byte(words)) {
		r.t.Fatalf("%v, want %s with %q", err, code, words)
	}
}

// manifest fails unless the version is there of that lease.
func (r *rig) manifest(version loop.Version, lease loop.LeaseID) weights.Manifest {
	r.t.Helper()
	m, err := r.store.Manifest(version)
	r.must(err)
	if m.Lease != lease {
		r.t.Fatalf("version %d is of lease %d, want %d", version, m.Lease, lease)
	}
	return m
}

// absent fails if the version is there.
func (r *rig) absent(version loop.Version) {
	r.t.Helper()
	if _, err := r.store.Manifest(version); !errors.Is(err, weights.ErrNotFound) {
		r.t.Fatalf("version %d: %v, want it absent", version, err)
	}
}
