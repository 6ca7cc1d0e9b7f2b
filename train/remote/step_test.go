package remote

import (
	"context"
	"errors"
	"io"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// A step from connect to commit, and what the loop is told of it.
func TestStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, func(o *Options) { o.SyncEvery = 1; o.Config = "seed: 1" })
		hello, err := r.Connect(t.Context(), protocol.ConnectRequest{Trainer: "a", Version: -1})
		r.must(err)
		want := protocol.ConnectReply{Action: protocol.ActionLoad, Version: 0, Next: 1, Load: 0, Optimizer: true, SyncEvery: 1, LeaseS: 60, Steps: 40, Run: "run-7", Config: "seed: 1"}
		if hello != want {
			t.Fatalf("connect: %+v, want %+v", hello, want)
		}
		done := make(chan protocol.Lease)
		go func() { done <- r.lease("a", 0, 0) }()
		synctest.Wait()
		if r.readies() != 1 || r.Status().State != "idle" {
			t.Fatalf("%d asks, status %+v: want one, idle", r.readies(), r.Status())
		}
		out := r.train(groups(5, 1, 0, 3))
		l := <-done
		if l.Lease != 5 || l.Attempt != 1 || l.Version != 0 || l.Groups != 3 || l.DeadlineS != 60 {
			t.Fatalf("lease %+v", l)
		}
		if s := r.Status(); s.State != "training" || s.Lease != 5 || s.Name != "a" || s.WorldSize != 1 {
			t.Fatalf("status %+v", s)
		}
		req := ofLease("a", l)
		req.Metrics = map[string]float64{"loss": 0.5, "mean_log_ratio": -0.25, "my_metric": 3, "minibatches": 2}
		reply, err := r.publish(req, model(1, 2))
		r.must(err)
		if reply.Version != 1 || reply.Existing {
			t.Fatalf("publish: %+v", reply)
		}
		report := r.trained(out)
		if report.Loss != 0.5 || report.MeanLogRatio != -0.25 || report.Minibatches != 2 || len(report.Metrics) != 1 || report.Metrics["my_metric"] != 3 || report.Rollouts != 6 || report.Tokens != 18 {
			t.Fatalf("report %+v", report)
		}
		r.manifest(1, 5)
		// The ack after the publish changes nothing, however often it comes.
		for range 2 {
			ack, err := r.Ack(t.Context(), 5, protocol.AckRequest{Trainer: "a", Attempt: 1, ForwardVersion: -1, StepVersion: -1})
			r.must(err)
			if ack.Version != 1 {
				t.Fatalf("ack: %+v", ack)
			}
		}
		r.refused(r.Nack(t.Context(), 5, protocol.NackRequest{Trainer: "a", Attempt: 1}), protocol.CodeConflict, "committed as version 1")
		_, err = r.Renew(t.Context(), 5, protocol.RenewRequest{Trainer: "a", Attempt: 1})
		r.refused(err, protocol.CodeExpired, "lease 5")
	})
}

// A lease that is not renewed goes back, and what comes later of it is refused.
func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, nil)
		out := r.train(groups(5, 1, 0, 2))
		l := r.lease("a", 0, 0)
		time.Sleep(59 * time.Second)
		renewed, err := r.Renew(t.Context(), 5, protocol.RenewRequest{Trainer: "a", Attempt: 1})
		r.must(err)
		if renewed.DeadlineS != 60 {
			t.Fatalf("renewed for %g s", renewed.DeadlineS)
		}
		began := time.Now()
		r.returned(out)
		if lasted := time.Since(began); lasted < 60*time.Second || lasted > 61*time.Second {
			t.Fatalf("it lasted %v after it was renewed", lasted)
		}
		_, err = r.Ack(t.Context(), 5, protocol.AckRequest{Trainer: "a", Attempt: 1, ForwardVersion: -1, StepVersion: -1})
		r.refused(err, protocol.CodeExpired, "lease 5, attempt 1")
		_, err = r.publish(ofLease("a", l), model(1, 2))
		r.refused(err, protocol.CodeExpired, "lease 5, attempt 1")
		_, err = r.Renew(t.Context(), 5, protocol.RenewRequest{Trainer: "a", Attempt: 1})
		r.refused(err, protocol.CodeExpired, "lease 5, attempt 1")
		r.must(r.Nack(t.Context(), 5, protocol.NackRequest{Trainer: "a", Attempt: 1}))
		r.absent(1)
		if s := r.Status(); s.State != "absent" && s.SilentS != 0 {
			t.Fatalf("status %+v", s)
		}
		// The same groups under a new lease: the late one still counts for nothing.
		out = r.train(groups(6, 1, 0, 2))
		r.lease("a", 0, 0)
		_, err = r.publish(ofLease("a", l), model(1, 2))
		r.refused(err, protocol.CodeExpired, "lease 5, attempt 1")
		_, err = r.publish(ofLease("a", protocol.Lease{Lease: 6, Attempt: 1}), model(3, 4))
		r.must(err)
		r.trained(out)
		r.manifest(1, 6)
	})
}

// A late call counts by the clock, not by when a timer fires.
func TestExpiryWithoutTimer(t *testing.T) {
	now := int64(0)
	r := started(t, func(o *Options) { o.Clock = func() int64 { return now }; o.Lease = time.Hour })
	out := r.train(groups(5, 1, 0, 2))
	l := r.lease("a", 0, 0)
	now += int64(time.Hour) + 1 // the timer of an hour has not fired
	_, err := r.publish(ofLease("a", l), model(1, 2))
	r.refused(err, protocol.CodeExpired, "lease 5")
	r.returned(out)
	r.absent(1)
}

// One silent rank among four returns the whole batch; until then the others' words do not help it.
func TestSilentRank(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, nil)
		out := r.train(groups(5, 1, 0, 4))
		rollouts := 0
		for rank := range 4 {
			l := r.lease("a", rank, 4)
			for _, s := range l.Stamps {
				rollouts += s.Rollouts
			}
		}
		if rollouts != 8 {
			t.Fatalf("%d rollouts in the four shares, want 8", rollouts)
		}
		renew := func(rank int) error {
			_, err := r.Renew(t.Context(), 5, protocol.RenewRequest{Trainer: "a", Attempt: 1, Rank: rank})
			return err
		}
		for range 5 {
			time.Sleep(30 * time.Second)
			for rank := range 4 {
				r.must(renew(rank))
			}
		}
		time.Sleep(40 * time.Second)
		for _, rank := range []int{0, 1, 3} {
			r.must(renew(rank))
		}
		time.Sleep(21 * time.Second)
		r.returned(out)
		r.refused(renew(0), protocol.CodeExpired, "lease 5")
	})
}

// A rank that asks again gets the same again; one that has finished its share waits for the next.
func TestAskAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, nil)
		out := r.train(groups(5, 1, 0, 4))
		synctest.Wait() // it is on offer, and nobody has to ask
		first, again := r.lease("a", 1, 2), r.lease("a", 1, 2)
		if first.Lease != again.Lease || len(first.Stamps) != len(again.Stamps) {
			t.Fatalf("%+v, then %+v", first, again)
		}
		l := r.lease("a", 0, 2)
		next := make(chan *protocol.Lease)
		go func() {
			next <- r.tryLease(protocol.LeaseRequest{Trainer: "a", Rank: 1, WorldSize: 2, WaitS: 60, After: 5, AfterAttempt: 1})
		}()
		// The rank that waits is not silent.
		for range 3 {
			time.Sleep(15 * time.Second)
			_, err := r.Renew(t.Context(), 5, protocol.RenewRequest{Trainer: "a", Attempt: 1, Rank: 0})
			r.must(err)
		}
		_, err := r.publish(ofLease("a", l), model(1, 2))
		r.must(err)
		r.trained(out)
		out = r.train(groups(6, 1, 1, 4))
		if l := <-next; l == nil || l.Lease != 6 {
			t.Fatalf("rank 1 got %+v, want lease 6", l)
		}
		if r.readies() != 1 {
			t.Fatalf("%d asks, want the one of the rank that waited when the step ended", r.readies())
		}
		r.lease("a", 0, 2)
		_, err = r.Lease(t.Context(), protocol.LeaseRequest{Trainer: "a", Rank: 0, WorldSize: 3})
		r.refused(err, protocol.CodeConflict, "world of 3")
		_ = out
	})
}

func TestNack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, nil)
		out := r.train(groups(5, 1, 0, 2))
		r.lease("a", 0, 0)
		for range 2 {
			r.must(r.Nack(t.Context(), 5, protocol.NackRequest{Trainer: "a", Attempt: 1, Reason: "not now"}))
		}
		r.returned(out)
		out = r.train(groups(6, 1, 0, 2))
		l := r.lease("a", 0, 0)
		r.must(r.Nack(t.Context(), 6, protocol.NackRequest{Trainer: "a", Attempt: 1, Reason: "out of memory", Failed: true}))
		if o := <-out; o.err == nil || errors.Is(o.err, port.ErrLeaseReturned) {
			t.Fatalf("Train: %v, want a failure", o.err)
		}
		// The loop tries the step again under the same lease: the first attempt is over.
		out = r.train(groups(6, 2, 0, 2))
		again := r.lease("a", 0, 0)
		if again.Attempt != 2 {
			t.Fatalf("attempt %d, want 2", again.Attempt)
		}
		_, err := r.publish(ofLease("a", l), model(1, 2))
		r.refused(err, protocol.CodeExpired, "attempt 1")
		_, err = r.publish(ofLease("a", again), model(3, 4))
		r.must(err)
		r.trained(out)
	})
}

// Every publish that must not commit, and none does.
func TestPublishRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, nil)
		out := r.train(groups(5, 1, 0, 2))
		synctest.Wait()
		_, err := r.publish(ofLease("a", protocol.Lease{Lease: 5, Attempt: 1}), model(1, 2))
		r.refused(err, protocol.CodeConflict, "is on offer and not taken")
		l := r.lease("a", 0, 0)
		minus := loop.Version(-1)
		for _, c := range []struct {
			code   protocol.Code
			words  string
			change func(*protocol.PublishRequest)
		}{
			{protocol.CodeConflict, "version 2 is out of order: the next one is 1", func(p *protocol.PublishRequest) { p.Version = 2 }},
			{protocol.CodeConflict, "version 0 is out of order", func(p *protocol.PublishRequest) { p.Version = 0 }},
			{protocol.CodeConflict, "without a lease", func(p *protocol.PublishRequest) { p.Lease = 0 }},
			{protocol.CodeExpired, "lease 4, attempt 1", func(p *protocol.PublishRequest) { p.Lease = 4 }},
			{protocol.CodeExpired, "attempt 2", func(p *protocol.PublishRequest) { p.Attempt = 2 }},
			{protocol.CodeExpired, "attempt 0", func(p *protocol.PublishRequest) { p.Attempt = 0 }},
			{protocol.CodeConflict, "weight version skew", func(p *protocol.PublishRequest) { p.StepVersion = 1 }},
			{protocol.CodeConflict, "weight version skew", func(p *protocol.PublishRequest) { p.ForwardVersion, p.StepVersion = 3, 3 }},
			{protocol.CodeInvalid, "want both from 0", func(p *protocol.PublishRequest) { p.ForwardVersion = -1 }},
			{protocol.CodeInvalid, `metric "loss" is NaN`, func(p *protocol.PublishRequest) { p.Metrics = map[string]float64{"loss": math.NaN()} }},
			{protocol.CodeInvalid, `metric "loss" is +Inf`, func(p *protocol.PublishRequest) { p.Metrics = map[string]float64{"loss": math.Inf(1)} }},
			{protocol.CodeInvalid, "a metric is called", func(p *protocol.PublishRequest) { p.Metrics = map[string]float64{"": 1} }},
			{protocol.CodeInvalid, `kind is "none"`, func(p *protocol.PublishRequest) { p.Kind = "none" }},
			{protocol.CodeInvalid, "restored_from is -1", func(p *protocol.PublishRequest) { p.Lease, p.RestoredFrom = 0, &minus }},
			{protocol.CodeInvalid, "give one of them", func(p *protocol.PublishRequest) { p.RestoredFrom = &minus }},
			{protocol.CodeInvalid, "join no collective", func(p *protocol.PublishRequest) { p.Rendezvous, p.Files = "gloo", nil }},
			{protocol.CodeInvalid, "part 1 is \"model.safetensors\", want other", func(p *protocol.PublishRequest) { p.Files[0].Name = "other.safetensors" }},
			{protocol.CodeInvalid, "after the 0 files", func(p *protocol.PublishRequest) { p.Files = nil }},
			{protocol.CodeInvalid, "1 files came, want the 2", func(p *protocol.PublishRequest) {
				p.Files = append(p.Files, protocol.PublishFile{Name: "optimizer.pt"})
			}},
			{protocol.CodeInvalid, "no directories are allowed", func(p *protocol.PublishRequest) { p.Directory = "/etc" }},
			{protocol.CodeInvalid, "..", func(p *protocol.PublishRequest) { p.Files[0].Name = "../model.safetensors" }},
			{protocol.CodeInvalid, "want the declared", func(p *protocol.PublishRequest) {
				p.Files[0].Hash, p.Files[0].Size = "sha256:0000000000000000000000000000000000000000000000000000000000000000", int64(len(model(1, 2)))
			}},
			{protocol.CodeInvalid, "more than the 9 bytes declared", func(p *protocol.PublishRequest) { p.Files[0].Size = 9 }},
			{protocol.CodeConflict, "trainer a has this run", func(p *protocol.PublishRequest) { p.Trainer = "b" }},
			{protocol.CodeInvalid, "trainer \"\"", func(p *protocol.PublishRequest) { p.Trainer = "" }},
		} {
			req := ofLease("a", l)
			c.change(&req)
			_, err := r.publish(req, model(1, 2))
			if refusal, ok := errors.AsType[*protocol.Refusal](err); !ok || refusal.Code != c.code {
				t.Errorf("%q: %v, want %s", c.words, err, c.code)
				continue
			}
			r.refused(err, c.code, c.words)
			r.absent(1)
		}
		// A connection that breaks in the middle of a file.
		broken := func() (string, io.Reader, error) {
			return "model.safetensors", io.MultiReader(&endsBadly{model(1, 2)[:20]}), nil
		}
		_, err = r.Publish(t.Context(), ofLease("a", l), broken)
		r.refused(err, protocol.CodeInvalid, "model.safetensors broke off")
		// NaN in the weights.
		_, err = r.publish(ofLease("a", l), model(1, float32(math.NaN())))
		r.refused(err, protocol.CodeInvalid, "finite")
		r.absent(1)
		// None of them has harmed the lease.
		_, err = r.publish(ofLease("a", l), model(1, 2))
		r.must(err)
		r.trained(out)
	})
}

// endsBadly is a body whose client goes away.
type endsBadly struct{ left []byte }

func (e *endsBadly) Read(p []byte) (int, error) {
	if len(e.left) == 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n := copy(p, e.left)
	e.left = e.left[n:]
	return n, nil
}

// The same publish again is fine, another one under the version is not.
func TestDoublePublish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, nil)
		out := r.train(groups(5, 1, 0, 2))
		l := r.lease("a", 0, 0)
		_, err := r.publish(ofLease("a", l), model(1, 2))
		r.must(err)
		r.trained(out)
		reply, err := r.publish(ofLease("a", l), model(1, 2))
		r.must(err)
		if !reply.Existing || reply.Version != 1 {
			t.Fatalf("again: %+v", reply)
		}
		_, err = r.publish(ofLease("a", l), model(1, 3))
		r.refused(err, protocol.CodeConflict, "version 1")
		req := ofLease("a", l)
		req.Version = 2
		_, err = r.publish(req, model(1, 2))
		r.refused(err, protocol.CodeConflict, "lease 5 was committed as version 1, not 2")
		// Two tries at once: one commits, the other finds it there.
		out = r.train(groups(6, 1, 1, 2))
		l = r.lease("a", 0, 0)
		replies := make(chan protocol.PublishReply, 2)
		for range 2 {
			go func() {
				reply, err := r.publish(ofLease("a", l), model(5, 6))
				if err != nil {
					t.Error(err)
				}
				replies <- reply
			}()
		}
		if one, two := <-replies, <-replies; one.Existing == two.Existing {
			t.Errorf("%+v and %+v, want one to find the other", one, two)
		}
		r.trained(out)
	})
}

// An ack without a publish makes a version without weights where engines do not want it.
func TestAckWithoutPublish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, func(o *Options) { o.SyncEvery = 2 })
		out := r.train(groups(5, 1, 0, 2))
		r.lease("a", 0, 0)
		ack := protocol.AckRequest{Trainer: "a", Attempt: 1, ForwardVersion: 0, StepVersion: 1}
		_, err := r.Ack(t.Context(), 5, ack)
		r.refused(err, protocol.CodeConflict, "weight version skew")
		ack.StepVersion = 0
		ack.Metrics = map[string]float64{"loss": math.Inf(-1)}
		_, err = r.Ack(t.Context(), 5, ack)
		r.refused(err, protocol.CodeInvalid, "-Inf")
		ack.Metrics = map[string]float64{"grad_norm": 2}
		for range 2 {
			reply, err := r.Ack(t.Context(), 5, ack)
			r.must(err)
			if reply.Version != 1 {
				t.Fatalf("ack: %+v", reply)
			}
		}
		if report := r.trained(out); report.GradNorm != 2 {
			t.Fatalf("report %+v", report)
		}
		if m := r.manifest(1, 5); m.Kind != "none" {
			t.Fatalf("kind %q, want none", m.Kind)
		}
		out = r.train(groups(6, 1, 1, 2))
		l := r.lease("a", 0, 0)
		_, err = r.Ack(t.Context(), 6, protocol.AckRequest{Trainer: "a", Attempt: 1, ForwardVersion: 1, StepVersion: 1})
		r.refused(err, protocol.CodeConflict, "version 2 goes to the engines (every 2)")
		r.absent(2)
		_, err = r.publish(ofLease("a", l), model(1, 2))
		r.must(err)
		r.trained(out)
		// A trainer that lost the versions without weights cannot go on as if it had them.
		out = r.train(groups(7, 1, 2, 2))
		r.lease("a", 0, 0)
		_, err = r.Ack(t.Context(), 7, protocol.AckRequest{Trainer: "a", Attempt: 1, ForwardVersion: -1, StepVersion: -1})
		r.must(err)
		r.trained(out)
		hello, err := r.Connect(t.Context(), protocol.ConnectRequest{Trainer: "a", Version: 2})
		r.must(err)
		if hello.Action != protocol.ActionRepublish || hello.Load != 2 || hello.Version != 3 || hello.Next != 4 {
			t.Fatalf("connect: %+v", hello)
		}
		out = r.train(groups(8, 1, 3, 2))
		_, err = r.Lease(t.Context(), protocol.LeaseRequest{Trainer: "a"})
		r.refused(err, protocol.CodeConflict, "publish its state as version 4")
		two := loop.Version(2)
		_, err = r.Publish(t.Context(), protocol.PublishRequest{Trainer: "a", Version: 4, RestoredFrom: &two}, nil)
		r.must(err)
		r.returned(out)
		if len(r.went) != 1 || r.went[0] != 4 {
			t.Fatalf("the loop was told of %v, want 4", r.went)
		}
		if m := r.manifest(4, 0); len(m.Files) != len(r.manifest(2, 6).Files) || m.RestoredFrom == nil || *m.RestoredFrom != 2 {
			t.Fatalf("manifest %+v", m)
		}
		r.train(groups(9, 1, 4, 2))
		r.lease("a", 0, 0)
	})
}

// When the run has ended, nothing follows from an earlier state.
func TestNothingIsRestoredAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, func(o *Options) { o.SyncEvery = 2 })
		out := r.train(groups(5, 1, 0, 2))
		r.lease("a", 0, 0)
		_, err := r.Ack(t.Context(), 5, protocol.AckRequest{Trainer: "a", Attempt: 1, ForwardVersion: -1, StepVersion: -1})
		r.must(err)
		r.trained(out)
		r.EndRun()
		zero := loop.Version(0)
		if _, err := r.Publish(t.Context(), protocol.PublishRequest{Trainer: "a", Version: 2, RestoredFrom: &zero}, nil); !errors.Is(err, protocol.ErrRunEnded) {
			t.Errorf("it is told %v", err)
		}
		r.absent(2)
		if len(r.went) != 0 {
			t.Errorf("the loop was told of %v", r.went)
		}
	})
}

// A long upload keeps its lease; one that stands still does not.
func TestUploadIsAWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, nil)
		out := r.train(groups(5, 1, 0, 2))
		l := r.lease("a", 0, 0)
		raw := model(1, 2)
		slowly := func(pause time.Duration) func() (string, io.Reader, error) {
			sent := false
			return func() (string, io.Reader, error) {
				if sent {
					return "", nil, io.EOF
				}
				sent = true
				return "model.safetensors", &drip{left: raw, pause: pause}, nil
			}
		}
		_, err := r.Publish(t.Context(), ofLease("a", l), slowly(50*time.Second))
		r.must(err)
		r.trained(out)
		out = r.train(groups(6, 1, 1, 2))
		l = r.lease("a", 0, 0)
		_, err = r.Publish(t.Context(), ofLease("a", l), slowly(61*time.Second))
		r.refused(err, protocol.CodeExpired, "lease 6")
		r.returned(out)
		r.absent(2)
	})
}

// A publish or an ack that is refused keeps the lease as a renewal does: its trainer was heard.
func TestRefusedPublishIsAWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, func(o *Options) { o.SyncEvery = 1 })
		out := r.train(groups(5, 1, 0, 2))
		l := r.lease("a", 0, 0)
		for range 3 {
			time.Sleep(50 * time.Second) // a lease lasts for 60
			request := ofLease("a", l)
			request.StepVersion = 1
			_, err := r.publish(request, model(1, 2))
			r.refused(err, protocol.CodeConflict, "weight version skew")
			time.Sleep(50 * time.Second)
			_, err = r.Ack(t.Context(), l.Lease, protocol.AckRequest{Trainer: "a", Attempt: l.Attempt})
			r.refused(err, protocol.CodeConflict, "goes to the engines")
		}
		_, err := r.publish(ofLease("a", l), model(1, 2))
		r.must(err)
		r.trained(out)
	})
}

// drip pauses before every few bytes.
type drip struct {
	left  []byte
	pause time.Duration
}

func (d *drip) Read(p []byte) (int, error) {
	if len(d.left) == 0 {
		return 0, io.EOF
	}
	time.Sleep(d.pause)
	n := copy(p[:min(len(p), 30)], d.left)
	d.left = d.left[n:]
	return n, nil
}

// A version that went over a collective brings no files, and its lease does not run out while
// the collective is waited for.
func TestCollective(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := errors.New("engine e1 has not got it")
		r := started(t, func(o *Options) {
			o.Collective = func(_ context.Context, name string, version loop.Version) error {
				time.Sleep(2 * time.Minute)
				if name != "gloo" || version != 1 {
					t.Errorf("collective %q for version %d", name, version)
				}
				return sent
			}
		})
		out := r.train(groups(5, 1, 0, 2))
		req := ofLease("a", r.lease("a", 0, 0))
		req.Rendezvous, req.Files = "gloo", nil
		if _, err := r.Publish(t.Context(), req, nil); !errors.Is(err, sent) {
			t.Fatalf("%v, want the collective's error", err)
		}
		r.absent(1)
		sent = nil
		_, err := r.Publish(t.Context(), req, nil)
		r.must(err)
		r.trained(out)
		if m := r.manifest(1, 5); m.Kind != "none" {
			t.Fatalf("kind %q, want none: the files are the trainer's", m.Kind)
		}
		sent = errors.New("it is asked about a version that it has confirmed")
		if reply, err := r.Publish(t.Context(), req, nil); err != nil || !reply.Existing {
			t.Fatalf("published once more: %+v, %v", reply, err)
		}
	})
}
