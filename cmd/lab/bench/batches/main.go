// Command batches serves one large batch on this machine, over and over, for clients/python/benchmarks/batches.py: a trainer
// that gives it back is offered it again. It prints its address, and ends with its standard input.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/headway-rl/headway/api"
	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/store/weights"
	"github.com/headway-rl/headway/train/remote"
)

func main() {
	groups := flag.Int("groups", 64, "groups of the batch")
	rollouts := flag.Int("rollouts", 8, "rollouts of a group")
	tokens := flag.Int("tokens", 150_000, "tokens of a rollout")
	flag.Parse()
	if err := serve(*groups, *rollouts, *tokens); err != nil {
		fmt.Fprintln(os.Stderr, "batches:", err)
		os.Exit(1)
	}
}

func serve(groups, rollouts, tokens int) error {
	folder, err := os.MkdirTemp("", "headway-batches-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	store, err := weights.Open(folder, weights.Options{})
	if err != nil {
		return err
	}
	batch := draw(groups, rollouts, tokens)
	began := time.Now()
	trainer, err := remote.New(remote.Options{Weights: store, Clock: func() int64 { return int64(time.Since(began)) }, Groups: ready(batch.Groups),
		Initial: func(ctx context.Context) error {
			return store.Publish(ctx, port.Publication{Model: []port.Tensor{{Name: "w", Shape: []int{1}, Data: []float32{0}}}})
		}})
	if err != nil {
		return err
	}
	if err := trainer.Initialize(context.Background()); err != nil {
		return err
	}
	server, err := api.New(api.Options{}, api.Ports{Plane: plane{}, Trainers: trainer, Versions: remote.Versions{Store: store}})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go func() { _ = http.Serve(listener, server.Handler()) }()
	go func() {
		for ; ; batch.Attempt++ {
			if _, err := trainer.Train(context.Background(), batch); !errors.Is(err, port.ErrLeaseReturned) {
				return
			}
		}
	}()
	fmt.Println("http://" + listener.Addr().String())
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// draw makes a batch whose rollouts all differ.
func draw(groups, rollouts, tokens int) port.Batch {
	rng := rand.New(rand.NewPCG(1, 1))
	b := port.Batch{Lease: 1, Attempt: 1}
	for g := range groups {
		group := port.Group{ID: loop.GroupID(g + 1), Rollouts: rollouts}
		for i := range rollouts {
			s := port.Sample{ID: port.RolloutID{Group: group.ID, Sample: int32(i), Attempt: 1}, Reward: float32(i % 2), Tokens: make([]int32, tokens),
				LossMask: make([]uint8, tokens), Logprobs: make([]float32, tokens), Versions: make([]loop.Version, tokens)}
			for k := range tokens {
				s.Tokens[k], s.LossMask[k], s.Logprobs[k] = rng.Int32N(150_000), 1, -rng.Float32()
			}
			group.Samples = append(group.Samples, s)
		}
		b.Groups = append(b.Groups, group)
	}
	return b
}

// ready are groups that wait all the time.
type ready []port.Group

// After implements remote.Groups.
func (r ready) After(place int64, most int) (groups []port.Group, places []int64, changed <-chan struct{}) {
	for at := place; at < int64(len(r)) && len(groups) < most; at++ {
		groups, places = append(groups, port.Group{ID: r[at].ID}), append(places, at+1)
	}
	return groups, places, nil
}

// Read implements remote.Groups.
func (r ready) Read(id loop.GroupID) (port.Group, error) { return r[id-1], nil }

// plane is a control plane without a run.
type plane struct{}

// Ready implements api.Plane.
func (plane) Ready() error { return nil }

// Status implements api.Plane.
func (plane) Status() protocol.Status { return protocol.Status{} }

// Subscribe implements api.Plane.
func (plane) Subscribe(context.Context) <-chan []byte { return nil }

// Engines implements api.Plane.
func (plane) Engines() []protocol.EngineVersion { return nil }
