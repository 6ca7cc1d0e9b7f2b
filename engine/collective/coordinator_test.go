package collective_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/engine/collective"
	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/loop"
)

// plane is a coordinator over a rendezvous, with what it said.
type plane struct {
	*collective.Coordinator
	t        *testing.T
	meetings *collective.Rendezvous
	mu       sync.Mutex
	said     []string
}

func newPlane(t *testing.T) *plane {
	p := &plane{t: t, meetings: collective.NewRendezvous(collective.RendezvousOptions{})}
	p.Coordinator = collective.NewCoordinator(collective.Options{Meetings: p.meetings, Logf: func(format string, args ...any) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.said = append(p.said, fmt.Sprintf(format, args...))
	}})
	return p
}

// heard fails unless something with these words was said exactly so often.
func (p *plane) heard(times int, words string) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, line := range p.said {
		if strings.Contains(line, words) {
			n++
		}
	}
	if n != times {
		p.t.Errorf("%q was said %d times, want %d: %q", words, n, times, p.said)
	}
}

// state fails unless the sender is in it.
func (p *plane) state(want string) protocol.Sender {
	p.t.Helper()
	s := p.Status()
	if s.State != want {
		p.t.Errorf("the sender is %+v, want it %s", s, want)
	}
	return s
}

// script is a sender that does what it is told without moving a byte.
type script struct {
	p        *plane
	name     string
	instance string
	backend  string
	// comesWith is the backend that it comes to a meeting with, empty for the one that it says.
	comesWith string
	holds     []loop.Version
	// hang lists kinds of commands that it never ends, fail those that it cannot carry out.
	hang, fail []string
	// twice: it says of everything twice that it is done.
	twice bool

	mu     sync.Mutex
	told   []protocol.SenderCommand
	groups []string
	// crowded: it was told of two commands of one engine at once.
	crowded bool
	err     error
	cancel  context.CancelFunc
}

func (p *plane) script(name, instance string, holds ...loop.Version) *script {
	return &script{p: p, name: name, instance: instance, backend: "gloo", holds: holds}
}

// start runs it in the bubble and returns once it waits.
func (s *script) start() *script {
	ctx, cancel := context.WithCancel(s.p.t.Context())
	s.cancel = cancel
	go func() {
		err := s.run(ctx)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.err = err
	}()
	synctest.Wait()
	return s
}

// kill ends it as a process that is killed ends: its polls break off, and it says no more.
func (s *script) kill() {
	s.cancel()
	synctest.Wait()
}

// run polls, and does every command in a goroutine of its own.
func (s *script) run(ctx context.Context) error {
	done := make(chan protocol.SenderDone, 64)
	running := map[int64]context.CancelFunc{}
	var report []protocol.SenderDone
	var again []protocol.SenderDone
	for {
		req := protocol.SenderRequest{Instance: s.instance, Backend: s.backend, Holds: s.holds, Done: append(report, again...), WaitS: 60}
		for seq := range running {
			if !slices.ContainsFunc(report, func(d protocol.SenderDone) bool { return d.Seq == seq }) {
				req.Knows = append(req.Knows, seq)
			}
		}
		if again = nil; s.twice {
			again = report
		}
		for _, d := range report {
			if stop := running[d.Seq]; stop != nil { // it was not given up meanwhile
				stop()
				delete(running, d.Seq)
			}
		}
		report = nil
		reply, err := s.poll(ctx, req, done, &report)
		if err != nil {
			return err
		}
		if reply == nil {
			continue
		}
		s.heed(ctx, reply, running, done)
	}
}

// poll asks once. A command that ends meanwhile breaks the poll off, so that it is said at once.
func (s *script) poll(ctx context.Context, req protocol.SenderRequest, done <-chan protocol.SenderDone, report *[]protocol.SenderDone) (*protocol.SenderReply, error) {
	broken, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		reply protocol.SenderReply
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		reply, err := s.p.Next(broken, s.name, req)
		answers <- answer{reply, err}
	}()
	select {
	case a := <-answers:
		return &a.reply, a.err
	case d := <-done:
		*report = append(*report, d)
		cancel()
		a := <-answers
		if a.err == nil {
			return &a.reply, nil // it was answered before it broke off
		}
		if ctx.Err() == nil && errors.Is(a.err, context.Canceled) {
			return nil, nil
		}
		return nil, a.err
	}
}

// heed begins what is new and gives up what is there no more.
func (s *script) heed(ctx context.Context, reply *protocol.SenderReply, running map[int64]context.CancelFunc, done chan<- protocol.SenderDone) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.groups = reply.Groups
	engines := map[string]bool{}
	for _, c := range reply.Commands {
		s.crowded = s.crowded || engines[c.Engine]
		engines[c.Engine] = true
	}
	for seq, stop := range running {
		if !slices.ContainsFunc(reply.Commands, func(c protocol.SenderCommand) bool { return c.Seq == seq }) {
			stop()
			delete(running, seq)
		}
	}
	for _, c := range reply.Commands {
		if running[c.Seq] != nil {
			continue
		}
		s.told = append(s.told, c)
		doing, stop := context.WithCancel(ctx)
		running[c.Seq] = stop
		go func() {
			if d, ok := s.do(doing, c); ok {
				done <- d
			}
		}()
	}
}

// do carries a command out; false where it was given up.
func (s *script) do(ctx context.Context, c protocol.SenderCommand) (protocol.SenderDone, bool) {
	d := protocol.SenderDone{Seq: c.Seq}
	switch {
	case slices.Contains(s.hang, c.Kind):
		<-ctx.Done()
		return d, false
	case slices.Contains(s.fail, c.Kind):
		d.Error = "no memory to " + c.Kind
	case c.Kind == protocol.SenderHold:
		d.Tensors, d.Digest = tensorsOf(c.Version), fmt.Sprint("digest ", c.Version)
	case c.Kind == protocol.SenderJoin:
		_, err := s.p.meetings.Join(ctx, c.Rendezvous, protocol.RendezvousRequest{Member: s.name, Role: "trainer", Engines: 1, Address: "10.0.0.7:29500", Backend: cmp.Or(s.comesWith, s.backend), WaitS: 60})
		if ctx.Err() != nil {
			return d, false
		}
		if err != nil {
			d.Error = err.Error()
		}
	}
	return d, true
}

func tensorsOf(v loop.Version) []protocol.SenderTensor {
	return []protocol.SenderTensor{{Name: "w", DType: "bfloat16", Shape: []int64{2, int64(v)}}}
}

// kinds are the commands that it was told, in order.
func (s *script) kinds() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, c := range s.told {
		out = append(out, fmt.Sprint(c.Kind, " ", c.Engine, " ", c.Version))
	}
	return strings.Join(out, ", ")
}

// standing are the groups that it was told of last.
func (s *script) standing() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.groups
}

// ended fails unless it was refused with that code and these words.
func (s *script) ended(code protocol.Code, words string) {
	s.p.t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	refused(s.p.t, s.err, code, words)
}

func refused(t *testing.T, err error, code protocol.Code, words string) {
	t.Helper()
	refusal, ok := errors.AsType[*protocol.Refusal](err)
	if !ok || refusal.Code != code || !strings.Contains(refusal.Message, words) {
		t.Errorf("%v, want %s with %q", err, code, words)
	}
}

// wants fails unless err has the words.
func wants(t *testing.T, err error, words string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), words) {
		t.Errorf("%v, want an error with %q", err, words)
	}
}

// willing is a server that joins at once.
func willing(context.Context, upstream.Group) error { return nil }

// meet makes a group, which must come to be.
func (p *plane) meet(engine string) upstream.Group {
	p.t.Helper()
	g, err := p.Meet(p.t.Context(), engine, 1, willing)
	if err != nil {
		p.t.Fatal(err)
	}
	return g
}

// call is what an engine asks of the coordinator, which may wait.
type call struct {
	group upstream.Group
	held  upstream.Held
	err   error
	over  atomic.Bool
}

func background(f func(c *call)) *call {
	c := &call{}
	go func() {
		f(c)
		c.over.Store(true)
	}()
	synctest.Wait()
	return c
}

func (p *plane) hold(ctx context.Context, engine string, version loop.Version) *call {
	return background(func(c *call) { c.held, c.err = p.Hold(ctx, engine, version) })
}

func (p *plane) meeting(ctx context.Context, engine string, join func(context.Context, upstream.Group) error) *call {
	return background(func(c *call) { c.group, c.err = p.Meet(ctx, engine, 2, join) })
}

func (p *plane) send(ctx context.Context, engine string, g upstream.Group, version loop.Version) *call {
	return background(func(c *call) { c.err = p.Send(ctx, engine, g, version) })
}

// ended reports whether the call has ended, once everyone waits.
func (c *call) ended() bool {
	synctest.Wait()
	return c.over.Load()
}

// fails waits and fails unless the call has ended with these words.
func (c *call) fails(t *testing.T, words string) {
	t.Helper()
	if !c.ended() {
		t.Errorf("it still waits, want an error with %q", words)
		return
	}
	wants(t, c.err, words)
}

// holds waits and fails unless the version was held.
func (c *call) holds(t *testing.T, version loop.Version) {
	t.Helper()
	if !c.ended() || c.err != nil || c.held.Digest != fmt.Sprint("digest ", version) || fmt.Sprint(c.held.Tensors) != fmt.Sprint(tensorsOf(version)) {
		t.Errorf("held %+v, %v (ended: %v), want version %d", c.held, c.err, c.ended(), version)
	}
}

// TestVersionToEngines: two engines take a version, each in a group of its own.
func TestVersionToEngines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t)
		if none := p.state(collective.StateAbsent); none.SentVersion != loop.NoVersion {
			t.Errorf("nothing was sent, and the status says version %d", none.SentVersion)
		}
		s := p.script("trainer", "first", 3).start()
		defer s.kill()
		for _, engine := range []string{"e0", "e 1"} {
			p.hold(t.Context(), engine, 3).holds(t, 3)
			joined := upstream.Group{}
			g, err := p.Meet(t.Context(), engine, 2, func(_ context.Context, g upstream.Group) error { joined = g; return nil })
			if err != nil || g != joined {
				t.Fatalf("met in %+v, the server joined %+v: %v", g, joined, err)
			}
			if want := (upstream.Group{Name: g.Name, Address: "10.0.0.7", Port: 29500, RankOffset: 1, WorldSize: 3, Backend: "gloo"}); g != want || g.Name == "" {
				t.Errorf("the group is %+v, want %+v", g, want)
			}
			if err := p.Send(t.Context(), engine, g, 3); err != nil || !p.Stands(engine, g) {
				t.Errorf("sent: %v", err)
			}
		}
		synctest.Wait()
		if got, want := s.kinds(), "hold e0 3, join e0 -1, send e0 3, hold e 1 3, join e 1 -1, send e 1 3"; got != want {
			t.Errorf("told %s, want %s", got, want)
		}
		status := p.state(collective.StateServing)
		if status.Name != "trainer" || status.Backend != "gloo" || len(status.Groups) != 2 || !slices.Equal(s.standing(), status.Groups) || !slices.Equal(status.Holds, []loop.Version{3}) {
			t.Errorf("status %+v, told of the groups %v", status, s.standing())
		}
		if status.Sends != 2 || status.FailedSends != 0 || status.SentVersion != 3 {
			t.Errorf("%d of %d sends failed, the newest was of version %d", status.FailedSends, status.Sends, status.SentVersion)
		}
		p.send(t.Context(), "e0", upstream.Group{Name: "none"}, 4).fails(t, "does not stand")
		if status := p.Status(); status.Sends != 3 || status.FailedSends != 1 || status.SentVersion != 3 {
			t.Errorf("%d of %d sends failed, the newest was of version %d", status.FailedSends, status.Sends, status.SentVersion)
		}
	})
}

// TestPart: a group that is given up is told of no more, and the sender learns it at once.
func TestPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t)
		s := p.script("trainer", "first", 3).start()
		defer s.kill()
		g := p.meet("e0")
		p.Part("e0", upstream.Group{Name: "another"})
		if synctest.Wait(); !p.Stands("e0", g) || !slices.Equal(s.standing(), []string{g.Name}) {
			t.Errorf("another group was given up, and %s stands %v", g.Name, p.Stands("e0", g))
		}
		p.Part("e0", g)
		if synctest.Wait(); p.Stands("e0", g) || len(s.standing()) != 0 {
			t.Errorf("it was given up, and the sender knows of %v", s.standing())
		}
		p.send(t.Context(), "e0", g, 3).fails(t, "does not stand")
		if again := p.meet("e0"); again.Name == g.Name {
			t.Errorf("the next group has the same name %s", g.Name)
		}
	})
}

// TestHoldWaits: a version is held by whoever comes, also after the one that was asked is gone.
func TestHoldWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t)
		held := p.hold(t.Context(), "e0", 3)
		p.heard(1, "engine e0 waits for a sender")
		if status := p.state(collective.StateAbsent); !slices.Equal(status.Waiting, []string{"e0"}) {
			t.Errorf("waiting are %v", status.Waiting)
		}
		time.Sleep(time.Hour)
		p.heard(1, "waits for a sender")
		s := p.script("trainer", "first")
		s.hang = []string{protocol.SenderHold}
		s.start()
		if status := p.state(collective.StateServing); len(status.Waiting) != 0 || held.ended() {
			t.Errorf("a sender is there, and %v wait; ended: %v", status.Waiting, held.ended())
		}
		s.kill()
		time.Sleep(31 * time.Second)
		p.state(collective.StateLost)
		time.Sleep(4 * time.Second)
		synctest.Wait()
		p.heard(1, "engine e0 waits for the sender: trainer was last heard of")
		first := s.told[0].Seq
		s = p.script("another", "second").start()
		defer s.kill()
		held.holds(t, 3)
		if s.told[0].Seq == first {
			t.Error("the next sender was given the same number: a late word of the one before would count")
		}
		if len(p.Status().Waiting) != 0 {
			t.Errorf("%v still wait", p.Status().Waiting)
		}
	})
}

// TestHoldFails: the sender's word is the error, and a context that ends takes the command back.
func TestHoldFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t)
		s := p.script("trainer", "first", 3)
		s.fail = []string{protocol.SenderHold}
		s.start()
		p.hold(t.Context(), "e0", 3).fails(t, "sender trainer: no memory to hold")
		s.kill()

		s = p.script("trainer", "second")
		s.hang = []string{protocol.SenderHold}
		s.start()
		defer s.kill()
		ctx, cancel := context.WithCancelCause(t.Context())
		held := p.hold(ctx, "e0", 3)
		cancel(errors.New("nobody wants it any more"))
		held.fails(t, "nobody wants it any more")
		p.hold(t.Context(), "e0", 4)
		other := p.hold(t.Context(), "e0", 5)
		if got := s.kinds(); got != "hold e0 3, hold e0 4, hold e0 5" || other.ended() {
			t.Errorf("told %s; ended: %v", got, other.ended())
		}
	})
}

// TestAVersionThatNobodyHas: a sender that has not got a version is waited for until it has that one, or
// another process comes; one that has a newer version will never have it.
func TestAVersionThatNobodyHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t)
		s := p.script("trainer", "first", 1)
		s.fail = []string{protocol.SenderHold}
		s.start()
		waits := func(what string, c *call) {
			t.Helper()
			if c.ended() {
				t.Fatalf("%s: it ended with %v, want it to wait", what, c.err)
			}
		}
		two := p.hold(t.Context(), "e0", 2)
		waits("the sender has version 1", two)
		if got := s.kinds(); got != "hold e0 2" {
			t.Errorf("told %s: want it asked once", got)
		}
		s.kill()
		waits("the sender is gone", two)

		s = p.script("trainer", "second", 2).start()
		two.holds(t, 2)
		s.kill()

		s = p.script("trainer", "third")
		s.fail = []string{protocol.SenderHold}
		s.start()
		three := p.hold(t.Context(), "e0", 3)
		waits("the sender has nothing", three)
		if _, err := p.Next(t.Context(), "trainer", protocol.SenderRequest{Instance: "third", Backend: "gloo", Holds: []loop.Version{4}}); err != nil {
			t.Fatal(err)
		}
		three.fails(t, "no memory to hold")

		five := p.hold(t.Context(), "e1", 5)
		waits("the sender has version 4", five)
		time.Sleep(91 * time.Second)
		five.fails(t, "no memory to hold")
		s.kill()
	})
}

// TestALateSenderHasItsTime: a sender that comes after hours is waited for as one that was there, until it has the version.
func TestALateSenderHasItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t)
		two := p.hold(t.Context(), "e0", 2)
		time.Sleep(time.Hour)
		s := p.script("trainer", "first")
		s.fail = []string{protocol.SenderHold}
		s.start()
		if two.ended() {
			t.Fatalf("it ended with %v as soon as a sender came that has not got the version yet", two.err)
		}
		s.kill()
		s = p.script("trainer", "second", 2).start()
		defer s.kill()
		two.holds(t, 2)
	})
}
