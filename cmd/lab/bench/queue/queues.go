package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/headway-rl/headway/internal/machine"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/store/jetstream"
	"github.com/headway-rl/headway/store/payload"
)

// ahead is how many groups may be ready and not leased; then producers wait.
const ahead = 128

// samplesOf is a group as every group of a load is, but for its number.
func samplesOf(l load) []port.Sample {
	random := rand.New(rand.NewPCG(1, 2))
	samples := make([]port.Sample, l.rollouts)
	for k := range samples {
		s := &samples[k]
		s.ID = port.RolloutID{Group: 1_000_000, Sample: int32(k), Attempt: 1}
		s.Reward, s.Prompt, s.Response = 0.5, "a prompt", "an answer"
		for i := range l.tokens {
			s.Tokens = append(s.Tokens, random.Int32N(128_000))
			s.LossMask = append(s.LossMask, uint8(min(i/16, 1)))
			s.Logprobs = append(s.Logprobs, -random.Float32())
			s.Versions = append(s.Versions, loop.Version(17))
		}
	}
	return samples
}

// measure times a run, with the processor's time of this process.
func measure(l load, run func() error) (figure, error) {
	f := figure{}
	for _, s := range samplesOf(l) {
		f.bytes += int64(len(payload.Append(nil, &s)))
	}
	cpu, start := machine.ProcessorTime(), time.Now()
	if err := run(); err != nil {
		return f, err
	}
	n := float64(l.groups)
	f.groupsPerS, f.cpuSPerGroup = n/time.Since(start).Seconds(), (machine.ProcessorTime()-cpu).Seconds()/n
	return f, nil
}

// produce has l.producers goroutines call put for every group, and passes on what was put.
func produce(l load, put func(group int) error) (ready <-chan int, failed func() error) {
	todo, done := make(chan int), make(chan int, ahead)
	var wait sync.WaitGroup
	var mutex sync.Mutex
	var errs []error
	for range l.producers {
		wait.Go(func() {
			for g := range todo {
				if err := put(g); err != nil {
					mutex.Lock()
					errs = append(errs, err)
					mutex.Unlock()
				}
				done <- g
			}
		})
	}
	go func() {
		for g := range l.groups {
			todo <- g + 1
		}
		close(todo)
		wait.Wait()
		close(done)
	}()
	return done, func() error {
		mutex.Lock()
		defer mutex.Unlock()
		return errors.Join(errs...)
	}
}

// ours is the durable queue of a run.
func ours(l load) (figure, error) {
	dir, err := os.MkdirTemp("", "queue")
	if err != nil {
		return figure{}, err
	}
	defer os.RemoveAll(dir)
	s, err := jetstream.Open(context.Background(), jetstream.Options{Dir: filepath.Join(dir, "nats"), Run: "bench", Always: l.always})
	if err != nil {
		return figure{}, err
	}
	defer s.Close()
	if _, _, err := s.Acquire(context.Background(), "bench"); err != nil {
		return figure{}, err
	}
	samples := samplesOf(l)
	return measure(l, func() error {
		ready, failed := produce(l, func(g int) error {
			for _, sample := range samples {
				sample.ID.Group = loop.GroupID(g)
				if err := s.PutSample(sample); err != nil {
					return err
				}
			}
			return nil
		})
		for g := range ready {
			got, err := s.Samples(loop.GroupID(g))
			if err == nil && (len(got) != l.rollouts || got[0].ID.Group != loop.GroupID(g) || len(got[0].Tokens) != l.tokens) {
				err = fmt.Errorf("group %d came back with %d payloads", g, len(got))
			}
			if err := errors.Join(err, s.Forget(loop.GroupID(g))); err != nil {
				return err
			}
		}
		return failed()
	})
}

// raw is a stream with the same messages: what JetStream itself can do.
func raw(l load) (figure, error) {
	dir, err := os.MkdirTemp("", "queue")
	if err != nil {
		return figure{}, err
	}
	defer os.RemoveAll(dir)
	srv, err := server.NewServer(&server.Options{DontListen: true, NoLog: true, NoSigs: true, JetStream: true, StoreDir: dir,
		MaxPayload: 8 << 20, MaxPending: 512 << 20, SyncAlways: l.always, JetStreamMaxStore: 1 << 60, WriteDeadline: time.Minute})
	if err != nil {
		return figure{}, err
	}
	srv.Start()
	defer srv.WaitForShutdown()
	defer srv.Shutdown()
	if !srv.ReadyForConnections(time.Minute) {
		return figure{}, errors.New("the server does not start")
	}
	var streams [2]natsjs.JetStream
	for i := range streams {
		conn, err := nats.Connect("", nats.InProcessServer(srv))
		if err != nil {
			return figure{}, err
		}
		defer conn.Close()
		if streams[i], err = natsjs.New(conn); err != nil {
			return figure{}, err
		}
	}
	return rawThrough(l, streams[0], streams[1])
}

func rawThrough(l load, put, get natsjs.JetStream) (figure, error) {
	ctx := context.Background()
	stream, err := get.CreateStream(ctx, natsjs.StreamConfig{Name: "raw", Subjects: []string{"raw"}, Storage: natsjs.FileStorage, MaxBytes: 8 << 30, Discard: natsjs.DiscardNew})
	if err != nil {
		return figure{}, err
	}
	consumer, err := stream.OrderedConsumer(ctx, natsjs.OrderedConsumerConfig{})
	if err != nil {
		return figure{}, err
	}
	atOnce := 500
	if l.tokens > 1000 {
		atOnce = 16 // a fetch of many large messages stalls
	}
	it, err := consumer.Messages(natsjs.PullMaxMessages(atOnce))
	if err != nil {
		return figure{}, err
	}
	defer it.Stop()
	var bodies [][]byte
	for _, s := range samplesOf(l) {
		bodies = append(bodies, payload.Append(nil, &s))
	}
	return measure(l, func() error {
		ready, failed := produce(l, func(int) error {
			for _, body := range bodies {
				f, err := put.PublishAsync("raw", body)
				if err != nil {
					return err
				}
				select {
				case <-f.Ok():
				case err := <-f.Err():
					return err
				}
			}
			return nil
		})
		size, purged := 0, 0
		for range ready {
			for range l.rollouts {
				m, err := it.Next()
				if err != nil {
					return err
				}
				if size += len(m.Data()); size-purged >= 8<<20 {
					purged = size
					meta, err := m.Metadata()
					if err != nil {
						return err
					}
					if err := stream.Purge(ctx, natsjs.WithPurgeSequence(meta.Sequence.Stream+1)); err != nil {
						return err
					}
				}
			}
		}
		return failed()
	})
}
