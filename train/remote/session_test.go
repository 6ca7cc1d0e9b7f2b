package remote

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// A second trainer is refused while the first is alive, and takes over when it is silent.
func TestTwoTrainers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, nil)
		connect := func(name string) error {
			_, err := r.Connect(t.Context(), protocol.ConnectRequest{Trainer: name, Version: 0})
			return err
		}
		r.must(connect("a"))
		time.Sleep(59 * time.Second)
		r.refused(connect("b"), protocol.CodeConflict, "trainer a has this run")
		_, err := r.Lease(t.Context(), protocol.LeaseRequest{Trainer: "b"})
		r.refused(err, protocol.CodeConflict, "trainer a has this run")
		// A call that waits keeps it alive however long it waits.
		if l := r.tryLease(protocol.LeaseRequest{Trainer: "a", WaitS: 60}); l != nil {
			t.Fatalf("lease %+v out of nothing", l)
		}
		time.Sleep(30 * time.Second)
		r.refused(connect("b"), protocol.CodeConflict, "trainer a has this run")
		out := r.train(groups(5, 1, 0, 2))
		l := r.lease("a", 0, 0)
		r.returned(out) // it has fallen silent
		r.must(connect("b"))
		r.refused(connect("a"), protocol.CodeConflict, "trainer b has this run")
		_, err = r.publish(ofLease("a", l), model(1, 2))
		r.refused(err, protocol.CodeExpired, "lease 5")
		if s := r.Status(); s.Name != "b" || s.State != "idle" {
			t.Fatalf("status %+v", s)
		}
	})
}

// A trainer that starts anew gives its lease back at once, unless it is committed.
func TestReconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, nil)
		out := r.train(groups(5, 1, 0, 4))
		r.lease("a", 0, 2)
		// Another rank of the same start takes nothing away.
		_, err := r.Connect(t.Context(), protocol.ConnectRequest{Trainer: "a", Version: 0, WorldSize: 2, Rank: 1})
		r.must(err)
		l := r.lease("a", 1, 2)
		began := time.Now()
		_, err = r.Connect(t.Context(), protocol.ConnectRequest{Trainer: "a", Version: 0, WorldSize: 2, Rank: 1})
		r.must(err)
		r.returned(out)
		if time.Since(began) != 0 {
			t.Fatalf("it took %v", time.Since(began))
		}
		_, err = r.publish(ofLease("a", l), model(1, 2))
		r.refused(err, protocol.CodeExpired, "lease 5")
		out = r.train(groups(6, 1, 0, 4))
		l = r.lease("a", 0, 2)
		_, err = r.publish(ofLease("a", l), model(1, 2))
		r.must(err)
		r.trained(out)
		hello, err := r.Connect(t.Context(), protocol.ConnectRequest{Trainer: "a", Version: 0, WorldSize: 2})
		r.must(err)
		if hello.Action != protocol.ActionRepublish || hello.Version != 1 || hello.Load != 1 || hello.Optimizer {
			t.Fatalf("connect: %+v", hello)
		}
		r.manifest(1, 6)
	})
}

func TestConnectActions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		_, err := r.Connect(t.Context(), protocol.ConnectRequest{Trainer: "a", Version: -1})
		r.refused(err, protocol.CodeUnavailable, "starting")
		for v := range loop.Version(4) {
			r.must(r.write(v, loop.LeaseID(v)))
		}
		r.must(r.Restore(t.Context(), 3, 0))
		for holds, want := range map[loop.Version]string{-1: protocol.ActionLoad, 0: protocol.ActionRepublish, 2: protocol.ActionRepublish, 3: protocol.ActionTrain, 4: protocol.ActionLoad} {
			reply, err := r.Connect(t.Context(), protocol.ConnectRequest{Trainer: "a", Version: holds})
			r.must(err)
			if reply.Action != want || reply.Version != 3 || reply.Next != 4 || reply.Load != 3 {
				t.Errorf("a trainer with version %d: %+v, want %s", holds, reply, want)
			}
		}
		for words, req := range map[string]protocol.ConnectRequest{
			"version -2":         {Trainer: "a", Version: -2},
			"rank 2 of":          {Trainer: "a", WorldSize: 2, Rank: 2},
			"rank -1 of":         {Trainer: "a", WorldSize: 2, Rank: -1},
			"world of 100000":    {Trainer: "a", WorldSize: 100_000},
			"letters, digits":    {Trainer: "a/b"},
			"1 to 128 character": {},
		} {
			_, err := r.Connect(t.Context(), req)
			r.refused(err, protocol.CodeInvalid, words)
		}
	})
}

// An ask that the loop did not hear is repeated while the trainer waits.
func TestAskIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, nil)
		if l := r.tryLease(protocol.LeaseRequest{Trainer: "a", WaitS: 19}); l != nil || r.readies() != 4 {
			t.Fatalf("%+v after %d asks, want none after 4 in 19 s", l, r.readies())
		}
		out := r.train(groups(5, 1, 0, 2))
		r.lease("a", 0, 0)
		r.returned(out)
		if r.readies() != 4 {
			t.Fatalf("%d asks, want none while a batch is out", r.readies())
		}
	})
}

// Without Options.Initial the trainer makes version 0, and the run waits for it.
func TestInitialize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *Options) { o.Initial = nil })
		begun := make(chan error, 1)
		go func() { begun <- r.Initialize(t.Context()) }()
		synctest.Wait()
		reply, err := r.Connect(t.Context(), protocol.ConnectRequest{Trainer: "a", Version: -1})
		r.must(err)
		if reply.Action != protocol.ActionInitialize || reply.Version != -1 || reply.Next != 0 || reply.Load != -1 {
			t.Fatalf("connect: %+v", reply)
		}
		zero := protocol.PublishRequest{Trainer: "a", Version: 0, Kind: "full", BaseVersion: -1, Files: []protocol.PublishFile{{Name: "model.safetensors"}}}
		one := zero
		one.Version = 1
		_, err = r.publish(one, model(1, 2))
		r.refused(err, protocol.CodeConflict, "without a lease")
		if len(begun) != 0 {
			t.Fatal("begun without weights")
		}
		_, err = r.publish(zero, model(1, 2))
		r.must(err)
		r.must(<-begun)
		reply2, err := r.publish(zero, model(1, 2))
		r.must(err)
		if !reply2.Existing {
			t.Fatalf("again: %+v", reply2)
		}
		_, err = r.publish(zero, model(2, 2))
		r.refused(err, protocol.CodeConflict, "version 0")
		out := r.train(groups(1, 1, 0, 2))
		_, err = r.publish(ofLease("a", r.lease("a", 0, 0)), model(3, 4))
		r.must(err)
		r.trained(out)
	})
}

// A trainer that went back to an earlier state goes on from it as the next version.
func TestRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		for v := range loop.Version(4) {
			r.must(r.write(v, loop.LeaseID(v)))
		}
		r.must(r.Restore(t.Context(), 3, 0))
		one := loop.Version(1)
		_, err := r.Connect(t.Context(), protocol.ConnectRequest{Trainer: "a", Version: 1})
		r.must(err)
		out := r.train(groups(5, 1, 3, 2))
		synctest.Wait()
		req := protocol.PublishRequest{Trainer: "a", Version: 4, RestoredFrom: &one, Files: []protocol.PublishFile{{Name: "model.safetensors"}}}
		wrong := req
		wrong.Version = 2
		_, err = r.publish(wrong, model(1, 1))
		r.refused(err, protocol.CodeConflict, "the next one is 4")
		nine := loop.Version(9)
		wrong.RestoredFrom = &nine
		_, err = r.publish(wrong, model(1, 1))
		r.refused(err, protocol.CodeInvalid, "restored_from is 9")
		for range 2 {
			_, err = r.publish(req, model(1, 1))
			r.must(err)
		}
		r.returned(out)
		if len(r.went) != 1 || r.went[0] != 4 {
			t.Fatalf("the loop was told of %v, want version 4 once", r.went)
		}
		// A batch of the version before, which the loop had chosen meanwhile, goes back at once.
		r.returned(r.train(groups(6, 1, 3, 2)))
		out = r.train(groups(7, 1, 4, 2))
		_, err = r.publish(ofLease("a", r.lease("a", 0, 0)), model(1, 2))
		r.must(err)
		r.trained(out)
	})
}

// The control plane dies with a lease out. The trainer that holds it goes on as if nothing
// had been, and its publish counts for the attempt that the recovered run makes.
func TestLeaseOutlivesRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := started(t, nil)
		ctx, kill := context.WithCancel(t.Context())
		out := before.trainUnder(ctx, groups(5, 1, 0, 2))
		l := before.lease("a", 0, 0)
		kill()
		if o := <-out; !errors.Is(o.err, context.Canceled) {
			t.Fatalf("Train: %v", o.err)
		}
		_, err := before.publish(ofLease("a", l), model(1, 2))
		before.refused(err, protocol.CodeUnavailable, "the lease stays yours")

		r := rigOn(t, before.store, nil)
		r.must(r.Restore(t.Context(), 0, 5))
		out = r.train(groups(5, 2, 0, 2))
		synctest.Wait()
		for range 4 {
			time.Sleep(50 * time.Second)
			_, err = r.Renew(t.Context(), 5, protocol.RenewRequest{Trainer: "a", Attempt: 1})
			r.must(err)
		}
		_, err = r.Lease(t.Context(), protocol.LeaseRequest{Trainer: "b"})
		r.refused(err, protocol.CodeConflict, "trainer a has this run")
		_, err = r.publish(ofLease("a", l), model(1, 2))
		r.must(err)
		r.trained(out)
		r.manifest(1, 5)
	})
}

// Between Restore and Train the batch that the log holds out is on its way to be offered: every call on it is told to
// come again, not that it is over; a call on any other lease is told that at once.
func TestRestartBeforeTheOffer(t *testing.T) {
	one := []func(r *rig, lease loop.LeaseID) error{
		func(r *rig, lease loop.LeaseID) error {
			_, err := r.Renew(r.t.Context(), lease, protocol.RenewRequest{Trainer: "a", Attempt: 1})
			return err
		},
		func(r *rig, lease loop.LeaseID) error {
			_, err := r.Ack(r.t.Context(), lease, protocol.AckRequest{Trainer: "a", Attempt: 1, ForwardVersion: -1, StepVersion: -1})
			return err
		},
		func(r *rig, lease loop.LeaseID) error {
			return r.Nack(r.t.Context(), lease, protocol.NackRequest{Trainer: "a", Attempt: 1})
		},
		func(r *rig, lease loop.LeaseID) error {
			_, err := r.publish(ofLease("a", protocol.Lease{Lease: lease, Attempt: 1}), model(1, 2))
			return err
		},
	}
	for _, drained := range []bool{false, true} {
		for i, call := range one {
			t.Run(fmt.Sprint(drained, i), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, nil)
					r.must(r.write(0, 0))
					if drained {
						r.Drain()
					}
					r.refused(call(r, 5), protocol.CodeUnavailable, "the run is starting")
					r.must(r.Restore(t.Context(), 0, 5))
					r.refused(call(r, 4), protocol.CodeExpired, "lease 4")
					r.refused(call(r, 6), protocol.CodeExpired, "lease 6")
					r.refused(call(r, 5), protocol.CodeUnavailable, "does not have lease 5 on offer yet")
					out := r.train(groups(5, 2, 0, 2))
					synctest.Wait()
					_, err := r.Renew(t.Context(), 5, protocol.RenewRequest{Trainer: "a", Attempt: 1})
					r.must(err)
					_, err = r.publish(ofLease("a", protocol.Lease{Lease: 5, Attempt: 1}), model(1, 2))
					r.must(err)
					r.trained(out)
					r.manifest(1, 5)
				})
			})
			t.Run(fmt.Sprint("over", drained, i), func(t *testing.T) {
				r := newRig(t, nil)
				r.must(r.write(0, 0))
				r.must(r.Restore(t.Context(), 0, 0)) // the log says that it went back
				r.refused(call(r, 5), protocol.CodeExpired, "lease 5")
				// And where the batch is offered no more, because the trainer went back meanwhile.
				zero := loop.Version(0)
				r.must(r.Restore(t.Context(), 0, 5))
				_, err := r.Publish(t.Context(), protocol.PublishRequest{Trainer: "a", Version: 1, RestoredFrom: &zero}, nil)
				r.must(err)
				r.refused(call(r, 5), protocol.CodeUnavailable, "lease 5")
				r.returned(r.train(groups(5, 2, 0, 2)))
				r.refused(call(r, 5), protocol.CodeExpired, "lease 5")
			})
		}
	}
}

// What was given out anew after a restart is not committed by who held it before.
func TestRestartGivesOutAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.must(r.write(0, 0))
		r.must(r.Restore(t.Context(), 0, 0))
		out := r.train(groups(5, 2, 0, 2))
		l := r.lease("a", 0, 0)
		if l.Attempt != 2 {
			t.Fatalf("attempt %d", l.Attempt)
		}
		old := l
		old.Attempt = 1
		_, err := r.publish(ofLease("a", old), model(9, 9))
		r.refused(err, protocol.CodeExpired, "attempt 1")
		// The batch went back before, and other groups are out: the old lease is nobody's.
		r.must(r.Nack(t.Context(), 5, protocol.NackRequest{Trainer: "a", Attempt: 2}))
		r.returned(out)
		r.train(groups(6, 1, 0, 2))
		synctest.Wait()
		_, err = r.publish(ofLease("a", old), model(9, 9))
		r.refused(err, protocol.CodeExpired, "lease 5")
		r.absent(1)
	})
}

// The control plane dies between two ranks' leases of one batch: the share that rank 0 has counts on
// while rank 1 takes its own from the new process.
func TestRestartBetweenLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.must(r.write(0, 0))
		r.must(r.Restore(t.Context(), 0, 0))
		out := r.train(groups(5, 2, 0, 4))
		l := r.lease("a", 1, 2)
		l.Attempt = 1 // what rank 0 has
		_, err := r.Renew(t.Context(), 5, protocol.RenewRequest{Trainer: "a", Attempt: 1, Rank: 0})
		r.must(err)
		_, err = r.publish(ofLease("a", l), model(1, 2))
		r.must(err)
		r.trained(out)
		r.manifest(1, 5)
	})
}

// Rank 0 starts anew after a restart and takes its share again: rank 1, which had finished its own and
// waits for the publish of before, gets the batch again instead of waiting for ever.
func TestRankWaitsForLostPublish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.must(r.write(0, 0))
		r.must(r.Restore(t.Context(), 0, 0))
		r.train(groups(5, 2, 0, 4))
		next := make(chan *protocol.Lease)
		go func() {
			next <- r.tryLease(protocol.LeaseRequest{Trainer: "a", Rank: 1, WorldSize: 2, WaitS: 60, After: 5, AfterAttempt: 1})
		}()
		synctest.Wait()
		r.lease("a", 0, 2)
		if l := <-next; l == nil || l.Lease != 5 || l.Attempt != 2 {
			t.Fatalf("rank 1 got %+v, want lease 5, attempt 2", l)
		}
	})
}

// The trainer dies between publish and ack, the control plane between commit and log:
// the manifest alone has ended the step.
func TestPublishIsTheCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := started(t, nil)
		out := before.train(groups(5, 1, 0, 2))
		_, err := before.publish(ofLease("a", before.lease("a", 0, 0)), model(1, 2))
		before.must(err)
		before.trained(out)

		r := rigOn(t, before.store, nil)
		r.must(r.Restore(t.Context(), 0, 5)) // as the log has it
		reply, err := r.Connect(t.Context(), protocol.ConnectRequest{Trainer: "a", Version: 1})
		r.must(err)
		if reply.Action != protocol.ActionTrain || reply.Version != 1 {
			t.Fatalf("connect: %+v", reply)
		}
		ack, err := r.Ack(t.Context(), 5, protocol.AckRequest{Trainer: "a", Attempt: 1, ForwardVersion: 0, StepVersion: 0})
		r.must(err)
		if ack.Version != 1 {
			t.Fatalf("ack: %+v", ack)
		}
		// The runtime finds the manifest itself (port.Weights.Committed) and goes on from it.
		r.must(r.Restore(t.Context(), 1, 0))
		out = r.train(groups(6, 1, 1, 2))
		_, err = r.publish(ofLease("a", r.lease("a", 0, 0)), model(3, 4))
		r.must(err)
		r.trained(out)
	})
}

// A restored version whose event is not in the log is told to the loop again.
func TestRestoredAcrossRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := started(t, nil)
		zero := loop.Version(0)
		_, err := before.Publish(t.Context(), protocol.PublishRequest{Trainer: "a", Version: 1, RestoredFrom: &zero}, nil)
		before.must(err)

		r := rigOn(t, before.store, nil)
		r.must(r.Restore(t.Context(), 0, 0))
		r.returned(r.train(groups(5, 2, 0, 2)))
		if len(r.went) != 1 || r.went[0] != 1 {
			t.Fatalf("the loop was told of %v, want version 1", r.went)
		}
		out := r.train(groups(6, 1, 1, 2))
		_, err = r.publish(ofLease("a", r.lease("a", 0, 0)), model(3, 4))
		r.must(err)
		r.trained(out)
	})
}

// A version of a lease that the run does not know is no reason to give batches back for ever.
func TestForeignVersion(t *testing.T) {
	r := newRig(t, nil)
	r.must(r.write(0, 0))
	r.must(r.write(1, 77))
	r.must(r.Restore(t.Context(), 0, 0))
	if o := <-r.train(groups(5, 2, 0, 2)); o.err == nil || errors.Is(o.err, port.ErrLeaseReturned) {
		t.Fatalf("Train: %v, want a failure", o.err)
	}
}

// A process that is deposed while a version comes in has its drafts taken away by the one that has the
// run now: the trainer is told who has it, whatever became of the draft.
func TestDeposedWhilePublishing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked, until int
		r := started(t, func(o *Options) {
			o.Fence = func() error {
				if asked++; asked > until {
					return errors.New("epoch 3 has the run")
				}
				return nil
			}
		})
		r.train(groups(5, 1, 0, 2))
		l := r.lease("a", 0, 0)
		for until = range 2 { // at the first look, and right before the version would be in its place
			asked = 0
			_, err := r.publish(ofLease("a", l), model(1, 2))
			r.refused(err, protocol.CodeUnavailable, "epoch 3 has the run")
			r.absent(1)
		}
		until = 1 << 30
		_, err := r.publish(ofLease("a", l), model(1, 2))
		r.must(err)
	})
}

// A process that is not the writer any more commits nothing.
func TestFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var deposed error
		r := started(t, func(o *Options) { o.SyncEvery = 2; o.Fence = func() error { return deposed } })
		r.train(groups(5, 1, 0, 2))
		l := r.lease("a", 0, 0)
		deposed = errors.New("epoch 3 has the run")
		_, err := r.publish(ofLease("a", l), model(1, 2))
		r.refused(err, protocol.CodeUnavailable, "epoch 3 has the run")
		_, err = r.Ack(t.Context(), 5, protocol.AckRequest{Trainer: "a", Attempt: 1, ForwardVersion: -1, StepVersion: -1})
		r.refused(err, protocol.CodeUnavailable, "epoch 3 has the run")
		r.absent(1)
	})
}

func TestEndAndDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, nil)
		errs := make(chan error, 2)
		wait := func() {
			_, err := r.Lease(t.Context(), protocol.LeaseRequest{Trainer: "a", WaitS: 60})
			errs <- err
		}
		go wait()
		synctest.Wait()
		r.Drain()
		r.refused(<-errs, protocol.CodeUnavailable, "draining")
		r.EndRun()
		go wait()
		if err := <-errs; !errors.Is(err, protocol.ErrRunEnded) {
			t.Fatalf("%v, want the run's end", err)
		}
		r.must(r.Close())
		go wait()
		if err := <-errs; !errors.Is(err, protocol.ErrRunEnded) {
			t.Fatalf("%v after closing, want the run's end", err)
		}
	})
}

// While it drains, the step that runs is finished: all ranks get their share, and it commits.
func TestDrainFinishesStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, nil)
		out := r.train(groups(5, 1, 0, 4))
		l := r.lease("a", 0, 2)
		r.Drain()
		r.lease("a", 1, 2)
		_, err := r.publish(ofLease("a", l), model(1, 2))
		r.must(err)
		r.trained(out)
		_, err = r.Lease(t.Context(), protocol.LeaseRequest{Trainer: "a", Rank: 1, WorldSize: 2})
		r.refused(err, protocol.CodeUnavailable, "draining")
	})
}

// A batch that must not be trained on fails the step with the rollout's name, and is offered to nobody.
func TestBadBatch(t *testing.T) {
	r := started(t, nil)
	b := groups(5, 1, 0, 2)
	b.Groups[1].Samples[0].Tokens[1] = 99
	if o := <-r.train(b); o.err == nil || errors.Is(o.err, port.ErrLeaseReturned) || o.err.Error() != "batch: rollout g2-s0-a1 has the id 99 at token 1, want from 0 to 31, inside the vocabulary" {
		t.Fatalf("Train: %v", o.err)
	}
	if l := r.tryLease(protocol.LeaseRequest{Trainer: "a"}); l != nil {
		t.Fatalf("lease %+v", l)
	}
}
