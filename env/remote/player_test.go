package remote

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop/port"
)

// TestPlayedAgain: the rollouts of players are claimed again after a restart. Their turns are answered as they were, in their
// order, and the rollout comes to what it would have come to. Nothing is kept of one that has no turn.
func TestPlayedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		kept := newShelf()
		players := func(o *Options) { keeping(kept)(o); o.Player, o.Limits.PromptTokens = "p", 200 }
		e := open(t, players)
		before := play(t, e, id(1, 0, 1))
		c := claim(t, e, "p")
		if n := kept.KeptTurns(id(1, 0, 1)); n != 0 {
			t.Errorf("%d are kept of a claim", n)
		}
		beside := play(t, e, id(2, 0, 1))
		elsewhere := claim(t, e, "w").ID // workers may help players
		ask(t, e, elsewhere, 20)
		prompts := [][]int32{{20}, {20, 1, 2, 21}, {20, 1, 2, 21, 2, 3, 22}}
		for i, prompt := range prompts[:2] {
			e.Note(c.ID, json.RawMessage{'"', byte('a' + i), '"'})
			ask(t, e, c.ID, prompt...)
		}
		for _, restart := range []string{"first", "second"} {
			before.stop(port.ErrEnded)
			beside.stop(port.ErrEnded)
			synctest.Wait()
			e = open(t, players)
			beside, _ = again(t, e, id(2, 0, 1))
			if notes := e.Notes(elsewhere); len(notes) > 0 {
				t.Errorf("%s: a worker's rollout has the notes %q", restart, notes)
			}
			ask(t, e, elsewhere, 21) // a new turn, and the last one told again
			var progress port.Progress
			before, progress = again(t, e, id(1, 0, 1))
			if want := (port.Progress{Turns: 2, Sampled: 4}); progress != want {
				t.Errorf("%s: it had come to %+v, want %+v", restart, progress, want)
			}
			_, err := e.Turn(t.Context(), c.ID, protocol.TurnRequest{Prompt: prompts[0]}, nil)
			refused(t, err, protocol.CodeConflict, "is not claimed")
			if got, err := e.Claim(t.Context(), protocol.ClaimRequest{Worker: "w"}); err != nil || len(got.Rollouts) > 0 {
				t.Errorf("%s: another worker is given %+v, %v", restart, got, err)
			}
			if c = claim(t, e, "p"); c.ID != "g1-s0-a1" {
				t.Errorf("%s: %s is claimed", restart, c.ID)
			}
			if notes := e.Notes(c.ID); len(notes) != 2 || string(notes[0])+string(notes[1]) != `"a""b"` {
				t.Errorf("%s: notes %q", restart, notes)
			}
			for i, prompt := range prompts[:2] {
				if reply := ask(t, e, c.ID, prompt...); !slices.Equal(reply.Tokens, []int32{int32(1 + i), int32(2 + i)}) || reply.Branches != 1 {
					t.Errorf("%s: turn %d is answered by %+v", restart, i, reply)
				}
			}
		}
		ask(t, e, c.ID, prompts[2]...)
		go e.Finish(t.Context(), c.ID, protocol.FinishRequest{Worker: "p", Reward: new(float32(1))})
		<-before.done
		if want := []int32{20, 1, 2, 21, 2, 3, 22, 3, 4}; before.err != nil || !slices.Equal(before.sample.Tokens, want) {
			t.Errorf("tokens %v, %v, want %v", before.sample.Tokens, before.err, want)
		}
		e.Logged(id(1, 0, 1), true)
		if s := finish(t, e, beside, elsewhere); !slices.Equal(s.Tokens, []int32{20, 1, 2, 21, 2, 3}) {
			t.Errorf("a worker's rollout has the tokens %v", s.Tokens)
		}
		synctest.Wait()
		empty(t, e)
	})
}

// TestForsaken: a rollout ends with the restart where its player asks otherwise than before, or says that it cannot go on.
func TestForsaken(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, e *Dispatcher, rollout string){
		"another prompt": func(t *testing.T, e *Dispatcher, rollout string) {
			_, err := e.Turn(t.Context(), rollout, protocol.TurnRequest{Prompt: []int32{21}}, nil)
			refused(t, err, protocol.CodeExpired, "its player asks otherwise")
		},
		"given up": func(_ *testing.T, e *Dispatcher, rollout string) {
			e.Forsake(rollout, errors.New("a tool answers otherwise"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				kept := newShelf()
				players := func(o *Options) { keeping(kept)(o); o.Player = "p" }
				e := open(t, players)
				p := play(t, e, id(1, 0, 1))
				ask(t, e, claim(t, e, "p").ID, 20)
				p.stop(port.ErrEnded)
				synctest.Wait()
				e = open(t, players)
				p, _ = again(t, e, id(1, 0, 1))
				end(t, e, claim(t, e, "p").ID)
				if <-p.done; !errors.Is(p.err, port.ErrUnkept) {
					t.Errorf("it ended with %v", p.err)
				}
				e.Logged(id(1, 0, 1), false)
				e.Forsake("g1-s0-a1", errors.New("once more"))
				empty(t, e)
			})
		})
	}
}

// TestNotPlayedAgain: a rollout ends with the restart where nothing is kept of it, and where it was played again twice without a
// turn more. A turn more begins the count anew.
func TestNotPlayedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		kept := newShelf()
		players := func(o *Options) { keeping(kept)(o); o.Player, o.Limits.PromptTokens = "p", 200 }
		e := open(t, players)
		if p, _ := again(t, e, id(2, 0, 1)); !ends(p) || !errors.Is(p.err, port.ErrUnkept) {
			t.Errorf("nothing is kept of it: %v", p.err)
		}
		kept.all[id(3, 0, 1)] = [][]byte{[]byte(`{"worker":"p"}`)}
		if p, _ := again(t, e, id(3, 0, 1)); !ends(p) || !errors.Is(p.err, port.ErrUnkept) {
			t.Errorf("a player of an earlier release played it: %v", p.err)
		}
		p := play(t, e, id(1, 0, 1))
		c := claim(t, e, "p")
		prompts := [][]int32{{20}, {20, 1, 2, 21}}
		note := func(prompt []int32) {
			e.Note(c.ID, json.RawMessage("1"))
			ask(t, e, c.ID, prompt...)
		}
		note(prompts[0])
		for restart, turns := range []int{1, 1, 2, 2, 2} {
			p.stop(port.ErrEnded)
			synctest.Wait()
			e = open(t, players)
			if p, _ = again(t, e, id(1, 0, 1)); restart == 4 {
				break
			}
			c = claim(t, e, "p")
			if n := len(e.Notes(c.ID)); n != turns {
				t.Fatalf("restart %d: %d notes, want %d", restart, n, turns)
			}
			if restart == 1 {
				ask(t, e, c.ID, prompts[0]...)
				note(prompts[1])
			}
		}
		if !ends(p) || !errors.Is(p.err, port.ErrUnkept) || !strings.Contains(p.err.Error(), "played again 2 times") {
			t.Errorf("it ended with %v", p.err)
		}
	})
}

// TestPlayersAfterWorkers: the claim of a worker that never heard of it does not take a player's rollout.
func TestPlayersAfterWorkers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		kept := newShelf()
		players := func(o *Options) { keeping(kept)(o); o.Player = "p" }
		e := open(t, players)
		p := play(t, e, id(1, 0, 1))
		hold := make(chan struct{})
		kept.change(hold, nil)
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() {
			_, err := e.Claim(ctx, protocol.ClaimRequest{Worker: "w"})
			left <- err
		}()
		synctest.Wait()
		leave()
		kept.change(nil, nil)
		close(hold)
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("who left was told %v", err)
		}
		c := claim(t, e, "p")
		e.Note(c.ID, json.RawMessage("1"))
		ask(t, e, c.ID, 20)
		p.stop(port.ErrEnded)
		synctest.Wait()
		e = open(t, players)
		again(t, e, id(1, 0, 1))
		if c := claim(t, e, "p"); c.ID != "g1-s0-a1" || len(e.Notes(c.ID)) != 1 {
			t.Errorf("%s is claimed", c.ID)
		}
	})
}

// TestWhatIsToldAgainNeedsNoRoom: the record has it.
func TestWhatIsToldAgainNeedsNoRoom(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		kept := newShelf()
		players := func(o *Options) {
			keeping(kept)(o)
			o.Player, o.Limits.PromptTokens, o.RoomBytesMax, o.RolloutBytesMax = "p", 2000, 1<<20, 60_000
		}
		e := open(t, players)
		p := play(t, e, id(1, 0, 1))
		c := claim(t, e, "p")
		prompt := make([]int32, 1000)
		e.Note(c.ID, json.RawMessage("1"))
		ask(t, e, c.ID, prompt...)
		p.stop(port.ErrEnded)
		synctest.Wait()
		e = open(t, players)
		again(t, e, id(1, 0, 1))
		if reply := ask(t, e, claim(t, e, "p").ID, prompt...); len(reply.Tokens) != 2 {
			t.Errorf("it is told %+v", reply)
		}
	})
}

// ends reports whether a rollout has ended.
func ends(p *played) bool {
	synctest.Wait()
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}
