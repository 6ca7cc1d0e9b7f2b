package collective_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/engine/collective"
	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/loop"
)

// withSender runs a test with a sender that has version 3, after a change of how it behaves.
func withSender(t *testing.T, change func(s *script), test func(t *testing.T, p *plane, s *script)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t)
		s := p.script("trainer", "first", 3)
		change(s)
		s.start()
		defer s.kill()
		test(t, p, s)
	})
}

// hanging is a server that joins for ever, unless its context ends.
func hanging(ctx context.Context, _ upstream.Group) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestSenderRestarts: another process under the same name breaks what was done with the one before, in each
// phase; what is to be held is asked of it, and engines meet it.
func TestSenderRestarts(t *testing.T) {
	for phase, begin := range map[string]func(p *plane, g upstream.Group) *call{
		protocol.SenderHold: func(p *plane, _ upstream.Group) *call { return p.hold(p.t.Context(), "e0", 3) },
		protocol.SenderJoin: func(p *plane, _ upstream.Group) *call { return p.meeting(p.t.Context(), "e0", willing) },
		protocol.SenderSend: func(p *plane, g upstream.Group) *call { return p.send(p.t.Context(), "e0", g, 3) },
	} {
		t.Run(phase, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlane(t)
				s := p.script("trainer", "first", 3).start()
				groups := map[string]upstream.Group{"e0": p.meet("e0"), "e1": p.meet("e1")}
				s.mu.Lock()
				s.hang = []string{phase}
				s.mu.Unlock()
				c := begin(p, groups["e0"])
				if c.ended() {
					t.Fatalf("it has ended: %v", c.err)
				}
				s.kill()
				next := p.script("trainer", "second", 3).start()
				defer next.kill()
				if phase == protocol.SenderHold {
					c.holds(t, 3)
				} else {
					c.fails(t, "another process has taken the place of sender trainer")
				}
				for engine, g := range groups {
					if p.Stands(engine, g) {
						t.Errorf("the group of %s stands, and who was in it has ended", engine)
					}
				}
				p.heard(1, "sender trainer is there again (gloo), as another process")
				if err := p.Send(t.Context(), "e0", p.meet("e0"), 3); err != nil {
					t.Errorf("with the next process: %v", err)
				}
				if synctest.Wait(); len(next.standing()) != 1 {
					t.Errorf("it knows of the groups %v, want one", next.standing())
				}
			})
		})
	}
}

// TestSenderSilent: what is done in a group ends when the sender falls silent, and its groups do not stand
// until it is heard of again.
func TestSenderSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t)
		s := p.script("trainer", "first", 3).start()
		idle := p.meet("e0")
		g := p.meet("e1")
		s.mu.Lock()
		s.hang = []string{protocol.SenderSend, protocol.SenderJoin}
		s.mu.Unlock()
		sent, met := p.send(t.Context(), "e1", g, 3), p.meeting(t.Context(), "e2", hanging)
		s.kill()
		time.Sleep(29 * time.Second)
		if sent.ended() || met.ended() || !p.Stands("e0", idle) {
			t.Fatalf("after 29 s: sent %v, met %v", sent.err, met.err)
		}
		time.Sleep(5 * time.Second)
		sent.fails(t, "sender trainer was last heard of")
		met.fails(t, "sender trainer was last heard of")
		if p.Stands("e0", idle) {
			t.Error("a group stands whose sender is silent")
		}
		p.state(collective.StateLost)
		s = p.script("trainer", "first", 3).start() // it was the network
		defer s.kill()
		if !p.Stands("e0", idle) || p.Stands("e1", g) || !slices.Equal(s.standing(), []string{idle.Name}) {
			t.Errorf("it is back and knows of %v, want %s alone", s.standing(), idle.Name)
		}
	})
}

// TestPollIsAWord: a sender whose poll is open is heard, however long nothing happens.
func TestPollIsAWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t)
		s := p.script("trainer", "first", 3).start()
		defer s.kill()
		g := p.meet("e0")
		for range 100 {
			time.Sleep(59 * time.Second)
			if p.state(collective.StateServing); !p.Stands("e0", g) {
				t.Fatal("its group does not stand")
			}
		}
		s.kill()
		time.Sleep(29 * time.Second)
		if p.state(collective.StateServing); !p.Stands("e0", g) {
			t.Error("the end of its poll was not a word of it")
		}
	})
}

// TestServerFailsToJoin: the sender gives the group up that it was told to join.
func TestServerFailsToJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t)
		s := p.script("trainer", "first", 3).start()
		defer s.kill()
		p.meeting(t.Context(), "e0", func(context.Context, upstream.Group) error { return errors.New("no such port") }).fails(t, "no such port")
		if len(s.standing()) != 0 || len(p.Status().Groups) != 0 {
			t.Errorf("the sender knows of %v", s.standing())
		}
		// Also where the sender's own part would take for ever.
		s.mu.Lock()
		s.hang = []string{protocol.SenderJoin}
		s.mu.Unlock()
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Hour, errors.New("they have not met within an hour"))
		defer cancel()
		met := p.meeting(ctx, "e0", willing)
		time.Sleep(59 * time.Minute)
		if met.ended() {
			t.Fatalf("it asks again as long as somebody may come, and ended by %v", met.err)
		}
		time.Sleep(time.Minute)
		met.fails(t, "they have not met within an hour")
		if len(s.standing()) != 0 {
			t.Errorf("the sender knows of %v", s.standing())
		}
	})
}

// TestSenderFailsToJoin: the server's part ends with the sender's.
func TestSenderFailsToJoin(t *testing.T) {
	withSender(t, func(s *script) { s.fail = []string{protocol.SenderJoin} }, func(t *testing.T, p *plane, s *script) {
		called := false
		met := p.meeting(t.Context(), "e0", func(ctx context.Context, g upstream.Group) error { called = true; return hanging(ctx, g) })
		met.fails(t, "sender trainer: no memory to join")
		if called {
			t.Error("the server was asked to join, and nobody was there to meet")
		}
		s.mu.Lock()
		s.fail, s.comesWith = nil, "nccl"
		s.mu.Unlock()
		p.meeting(t.Context(), "e0", willing).fails(t, "all members of a collective use the same")
	})
}

// TestLostOnceJoined: a sender that leaves, or falls silent, when both sides have joined and before the engine is
// told so, leaves a group that does not stand.
func TestLostOnceJoined(t *testing.T) {
	for how, lose := range map[string]func(p *plane, s *script){
		"it leaves": func(p *plane, s *script) {
			if _, err := p.Next(p.t.Context(), s.name, protocol.SenderRequest{Instance: s.instance, Backend: s.backend, Leaving: true}); err != nil {
				p.t.Error(err)
			}
		},
		"it falls silent": func(_ *plane, s *script) {
			s.kill()
			time.Sleep(31 * time.Second)
		},
	} {
		t.Run(how, func(t *testing.T) {
			withSender(t, func(*script) {}, func(t *testing.T, p *plane, s *script) {
				_, err := p.Meet(t.Context(), "e0", 1, func(context.Context, upstream.Group) error {
					synctest.Wait() // the sender has said that it has joined
					lose(p, s)
					return nil
				})
				wants(t, err, "the sender was lost right after it had joined")
			})
		})
	}
}

// TestLateToJoin: an engine that does not come to a group is named after a while, with the address that it is to
// reach, and so is a sender that does not come to meet it; until both are in the group it does not stand.
func TestLateToJoin(t *testing.T) {
	withSender(t, func(s *script) { s.hang = []string{protocol.SenderJoin} }, func(t *testing.T, p *plane, s *script) {
		joining := func(address string, forS float64, late bool) {
			t.Helper()
			want := []protocol.SenderJoining{{Engine: "e0", Address: address, ForS: forS, Late: late}}
			if status := p.Status(); !slices.Equal(status.Joining, want) || len(status.Groups) != 0 {
				t.Errorf("joining are %+v, want %+v; groups %v", status.Joining, want, status.Groups)
			}
		}
		release, mine := make(chan struct{}), upstream.Group{}
		met := p.meeting(t.Context(), "e0", func(_ context.Context, g upstream.Group) error { mine = g; <-release; return nil })
		time.Sleep(14 * time.Second)
		joining("", 14, false)
		p.heard(0, "e0")
		time.Sleep(2 * time.Second)
		joining("", 16, true)
		p.heard(1, "engine e0 waits for a group with sender trainer, which was told to meet it 15 s ago and has not come")

		join := s.told[0]
		background(func(c *call) {
			_, c.err = p.meetings.Join(t.Context(), join.Rendezvous, protocol.RendezvousRequest{Member: "trainer", Role: "trainer", Engines: 1, Address: "10.0.0.7:29500", Backend: "gloo", WaitS: 60})
		})
		time.Sleep(14 * time.Second)
		joining("10.0.0.7:29500", 14, false)
		p.heard(1, "e0")
		time.Sleep(time.Minute)
		joining("10.0.0.7:29500", 74, true)
		p.heard(1, "engine e0 has not joined its group with sender trainer for 15 s: it is to reach the sender at 10.0.0.7:29500, the address that the sender gave")
		p.heard(1, "host= of the Sender, and GLOO_SOCKET_IFNAME of both processes")
		p.heard(2, "e0")

		if _, err := p.Next(t.Context(), s.name, protocol.SenderRequest{Instance: s.instance, Backend: s.backend, Done: []protocol.SenderDone{{Seq: join.Seq}}}); err != nil {
			t.Error(err)
		}
		if met.ended() || p.Stands("e0", mine) {
			t.Errorf("a group stands that the engine has not joined: %v", met.err)
		}
		close(release)
		if !met.ended() || met.err != nil || !p.Stands("e0", mine) {
			t.Errorf("both have joined, and it is %v that the group stands: %v", p.Stands("e0", mine), met.err)
		}
		time.Sleep(time.Minute)
		if status := p.Status(); len(status.Joining) != 0 || !slices.Equal(status.Groups, []string{mine.Name}) {
			t.Errorf("both have joined, and the status is %+v", status)
		}
		p.heard(2, "e0")
	})
}

// TestLateMember: a sender that still waits where an engine was to be met is not taken for the one that
// comes to the next meeting.
func TestLateMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t)
		ask := func(req protocol.SenderRequest) protocol.SenderReply {
			req.Instance, req.Backend = "first", "gloo"
			reply, err := p.Next(t.Context(), "trainer", req)
			if err != nil {
				t.Error(err)
			}
			return reply
		}
		ask(protocol.SenderRequest{})
		ctx, cancel := context.WithCancel(t.Context())
		met := p.meeting(ctx, "e0", willing)
		first := ask(protocol.SenderRequest{}).Commands[0]
		cancel()
		met.fails(t, "context canceled")
		again := p.meeting(t.Context(), "e0", willing)
		late := background(func(c *call) {
			_, c.err = p.meetings.Join(t.Context(), first.Rendezvous, protocol.RendezvousRequest{Member: "trainer", Role: "trainer", Engines: 1, Address: "10.0.0.7:29500", Backend: "gloo", WaitS: 60})
		})
		reply := ask(protocol.SenderRequest{Knows: []int64{first.Seq}})
		if again.ended() || late.ended() || len(reply.Commands) != 1 || reply.Commands[0].Rendezvous == first.Rendezvous {
			t.Errorf("met with one that was late: %+v, %v; told %+v", again.group, again.err, reply)
		}
		ask(protocol.SenderRequest{Done: []protocol.SenderDone{{Seq: reply.Commands[0].Seq, Error: "enough"}}})
		again.fails(t, "enough")
	})
}

// TestMeetGivesUpItsMeeting: whoever waits where an engine comes no more is told so.
func TestMeetGivesUpItsMeeting(t *testing.T) {
	withSender(t, func(s *script) { s.hang = []string{protocol.SenderJoin} }, func(t *testing.T, p *plane, s *script) {
		ctx, cancel := context.WithCancel(t.Context())
		met := p.meeting(ctx, "e0", willing)
		name := s.told[0].Rendezvous
		other := background(func(c *call) {
			_, c.err = p.meetings.Join(t.Context(), name, protocol.RendezvousRequest{Member: "e9", Role: "engine", Backend: "gloo", WaitS: 60})
		})
		cancel()
		met.fails(t, "context canceled")
		other.ended()
		refused(t, other.err, protocol.CodeExpired, "given up")
	})
}

// TestSendCancelled: the command is there no more, nor is the group.
func TestSendCancelled(t *testing.T) {
	withSender(t, func(s *script) { s.hang = []string{protocol.SenderSend} }, func(t *testing.T, p *plane, s *script) {
		g := p.meet("e0")
		ctx, cancel := context.WithCancelCause(t.Context())
		sent := p.send(ctx, "e0", g, 3)
		if got := s.kinds(); got != "join e0 -1, send e0 3" {
			t.Errorf("told %s", got)
		}
		cancel(errors.New("the server has failed"))
		sent.fails(t, "the server has failed")
		if len(s.standing()) != 0 || p.Stands("e0", g) {
			t.Errorf("the sender knows of %v", s.standing())
		}
		reply, err := p.Next(t.Context(), "trainer", protocol.SenderRequest{Instance: "first", Backend: "gloo"})
		if err != nil || len(reply.Commands) != 0 {
			t.Errorf("commands are left: %+v, %v", reply, err)
		}
	})
}

// TestSaidTwice: what was said to be done counts once, also when it is said again much later, and what
// nobody asked for counts for nothing.
func TestSaidTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t)
		s := p.script("trainer", "first", 3)
		s.twice = true
		s.start()
		g := p.meet("e0")
		for v := range loop.Version(20) {
			p.hold(t.Context(), "e0", v).holds(t, v)
			if err := p.Send(t.Context(), "e0", g, v); err != nil {
				t.Error(err)
			}
		}
		s.kill()
		var all []protocol.SenderDone
		for _, c := range s.told {
			all = append(all, protocol.SenderDone{Seq: c.Seq, Error: "late"}, protocol.SenderDone{Seq: -c.Seq})
		}
		held := p.hold(t.Context(), "e0", 30)
		if _, err := p.Next(t.Context(), "trainer", protocol.SenderRequest{Instance: "first", Backend: "gloo", Done: all}); err != nil || held.ended() || !p.Stands("e0", g) {
			t.Errorf("old words counted: %v, held %v", err, held.err)
		}
	})
}

// TestTwoSenders: a run has one; another may take its place once it is silent or has ended, and a process
// that was replaced under its name does not come back.
func TestTwoSenders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t)
		a := p.script("a", "first", 3).start()
		p.script("b", "second").start().ended(protocol.CodeConflict, "sender a is this run's")
		p.script("a", "third").start().ended(protocol.CodeConflict, "another process is sender a at this moment")
		a.kill()
		second := p.script("a", "third").start()
		p.script("a", "first").start().ended(protocol.CodeExpired, "another process has come under this name since")
		other := p.script("a", "third")
		other.backend = "nccl"
		other.start().ended(protocol.CodeConflict, "its collectives are of gloo, and says nccl now")
		second.kill()
		time.Sleep(31 * time.Second)
		b := p.script("b", "second").start()
		p.heard(1, "sender b is there (gloo) in the place of a, which is silent")
		p.script("a", "third").start().ended(protocol.CodeConflict, "sender b is this run's")

		g, held := p.meet("e0"), upstream.Held{}
		leave := protocol.SenderRequest{Instance: "first", Backend: "gloo", Leaving: true}
		if _, err := p.Next(t.Context(), "b", leave); err != nil || !p.Stands("e0", g) {
			t.Errorf("a process that is not the sender left, and took its groups with it: %v", err)
		}
		leave.Instance = "second"
		if reply, err := p.Next(t.Context(), "b", leave); err != nil || reply.Commands == nil || reply.Groups == nil {
			t.Errorf("leaving: %+v, %v", reply, err)
		}
		b.ended(protocol.CodeExpired, "this one has left")
		p.script("b", "second").start().ended(protocol.CodeExpired, "this one has left") // a poll that was late
		if p.state(collective.StateAbsent); p.Stands("e0", g) || held.Digest != "" {
			t.Error("it has left, and its group stands")
		}
		p.send(t.Context(), "e0", g, 3).fails(t, "does not stand any more")
		p.script("a", "third").start().kill()
		p.heard(2, "sender a is there (gloo)")
	})
}

// TestAnswers: a poll is answered at once if there is something to say, else after its wait, a minute at
// most.
func TestAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t)
		began := time.Now()
		ask := func(waitS float64, knows ...int64) protocol.SenderReply {
			reply, err := p.Next(t.Context(), "trainer", protocol.SenderRequest{Instance: "first", Backend: "gloo", WaitS: waitS, Knows: knows})
			if err != nil || reply.Commands == nil || reply.Groups == nil {
				t.Errorf("%+v, %v", reply, err)
			}
			return reply
		}
		took := func(want time.Duration) {
			t.Helper()
			if got := time.Since(began); got != want {
				t.Errorf("answered after %v, want %v", got, want)
			}
			began = time.Now()
		}
		ask(20) // a process that is new here may be in groups of a control plane before
		took(0)
		ask(20)
		took(20 * time.Second)
		ask(1e300)
		took(time.Minute)
		ask(-1)
		took(0)
		ask(20, 7)
		took(0)
		p.hold(t.Context(), "e0", 3)
		p.hold(t.Context(), "e1", 3)
		commands := ask(20).Commands
		took(0)
		if len(commands) != 2 || commands[0].Seq >= commands[1].Seq || commands[0].Engine != "e0" {
			t.Fatalf("told %+v", commands)
		}
		ask(20, commands[1].Seq, commands[0].Seq)
		took(20 * time.Second)
		ask(20, commands[0].Seq)
		took(0)
		ask(20, commands[0].Seq, commands[1].Seq, commands[1].Seq+1)
		took(0)
		p.hold(t.Context(), "e1", 4)
		if again := ask(20, commands[0].Seq, commands[1].Seq).Commands; len(again) != 2 || again[1].Version != 4 {
			t.Errorf("told %+v", again)
		}
		took(0)
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("the server closes"))
		_, err := p.Next(ctx, "trainer", protocol.SenderRequest{Instance: "first", Backend: "gloo", WaitS: 20, Knows: []int64{commands[0].Seq, commands[1].Seq + 1}})
		wants(t, err, "the server closes")
	})
}

// TestConfirm: a version may be published without its files once its sender has said that it holds it.
func TestConfirm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t)
		confirm := func(name string) *call {
			return background(func(c *call) { c.err = p.Confirm(t.Context(), name, 3) })
		}
		absent := confirm("trainer")
		time.Sleep(30 * time.Second)
		absent.ended()
		refused(t, absent.err, protocol.CodeConflict, "no sender is there")
		early := confirm("trainer")
		s := p.script("trainer", "first", 2).start()
		if early.ended() {
			t.Fatalf("it may say so yet: %v", early.err)
		}
		refused(t, confirm("another").err, protocol.CodeConflict, "is not this run's sender, which is trainer")
		s.kill()
		s = p.script("trainer", "first", 2, 3).start()
		defer s.kill()
		if !early.ended() || early.err != nil {
			t.Errorf("it holds the version: %v", early.err)
		}
		pruned := background(func(c *call) { c.err = p.Confirm(t.Context(), "trainer", 1) })
		time.Sleep(30 * time.Second)
		pruned.ended()
		refused(t, pruned.err, protocol.CodeConflict, "has not said that it holds version 1")
	})
}

// TestImpossibleWords are refused with what is wrong.
func TestImpossibleWords(t *testing.T) {
	p := newPlane(t)
	done := func(d protocol.SenderDone) func(*protocol.SenderRequest) {
		return func(q *protocol.SenderRequest) { q.Done = []protocol.SenderDone{d} }
	}
	tensor := func(x protocol.SenderTensor) func(*protocol.SenderRequest) {
		return done(protocol.SenderDone{Seq: 5, Tensors: []protocol.SenderTensor{x}})
	}
	for words, change := range map[string]func(*protocol.SenderRequest){
		`instance is ""`:           func(q *protocol.SenderRequest) { q.Instance = "" },
		"want 1 to 128 characters": func(q *protocol.SenderRequest) { q.Instance = strings.Repeat("x", 129) },
		`backend is "mpi"`:         func(q *protocol.SenderRequest) { q.Backend = "mpi" },
		"it holds version -1":      func(q *protocol.SenderRequest) { q.Holds = []loop.Version{-1} },
		"it holds 1025 versions":   func(q *protocol.SenderRequest) { q.Holds = make([]loop.Version, 1025) },
		"it knows 8193 commands":   func(q *protocol.SenderRequest) { q.Knows = make([]int64, 8193) },
		"has done 8193":            func(q *protocol.SenderRequest) { q.Done = make([]protocol.SenderDone, 8193) },
		`tensor 0 is called ""`:    tensor(protocol.SenderTensor{DType: "bfloat16"}),
		"tensor w is of the type":  tensor(protocol.SenderTensor{Name: "w"}),
		"65 dimensions":            tensor(protocol.SenderTensor{Name: "w", DType: "bfloat16", Shape: make([]int64, 65)}),
		"a dimension of -1":        tensor(protocol.SenderTensor{Name: "w", DType: "bfloat16", Shape: []int64{2, -1}}),
		"[1125899906842624 2]":     tensor(protocol.SenderTensor{Name: "w", DType: "bfloat16", Shape: []int64{1 << 50, 2}}),
		"1048577 tensors":          done(protocol.SenderDone{Tensors: make([]protocol.SenderTensor, 1<<20+1)}),
		"command 0: a digest":      done(protocol.SenderDone{Digest: strings.Repeat("x", 1025)}),
	} {
		req := protocol.SenderRequest{Instance: "first", Backend: "gloo"}
		change(&req)
		_, err := p.Next(t.Context(), "trainer", req)
		refused(t, err, protocol.CodeInvalid, words)
	}
	_, err := p.Next(t.Context(), "a b", protocol.SenderRequest{Instance: "first", Backend: "gloo"})
	refused(t, err, protocol.CodeInvalid, `the sender's name is "a b"`)
	p.state(collective.StateAbsent)
}

// TestLongErrors: an error of any length is kept to what somebody reads.
func TestLongErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t)
		held := p.hold(t.Context(), "e0", 3)
		ask := func(d ...protocol.SenderDone) protocol.SenderReply {
			reply, err := p.Next(t.Context(), "trainer", protocol.SenderRequest{Instance: "first", Backend: "gloo", Holds: []loop.Version{3}, Done: d})
			if err != nil {
				t.Error(err)
			}
			return reply
		}
		ask(protocol.SenderDone{Seq: ask().Commands[0].Seq, Error: strings.Repeat("long ", 1<<20)})
		if !held.ended() || len(held.err.Error()) > 5<<10 {
			t.Errorf("an error of %d bytes", len(fmt.Sprint(held.err)))
		}
	})
}
