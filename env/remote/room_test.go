package remote

import (
	"errors"
	"testing"
	"time"

	"github.com/headway-rl/headway/api/protocol"
)

// callInACircle has an agent call in a circle, a branch a call, until it is refused or has called so often.
func callInACircle(t *testing.T, e *Dispatcher, id string, calls int) (answered int, refusal *protocol.Refusal) {
	t.Helper()
	for ; answered < calls; answered++ {
		if _, err := e.Turn(t.Context(), id, protocol.TurnRequest{Prompt: []int32{int32(answered % vocabulary)}}, nil); err != nil {
			if !errors.As(err, &refusal) {
				t.Fatal(err)
			}
			return answered, refusal
		}
		if held := e.Bounds()[0]; held.Held > held.Max {
			t.Fatalf("%d bytes are held of %d", held.Held, held.Max)
		}
	}
	return answered, nil
}

// TestRoom: agents that call in a circle cannot hold more together than the bound. Those above their share
// wait, all but the oldest, which its own bound ends. Others go on meanwhile, and none of them is lost.
func TestRoom(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := open(t, func(o *Options) { o.RoomBytesMax, o.RolloutBytesMax = 16<<10, 6<<10 })
		var players []*played
		var ids []string
		for i := range int32(5) {
			players = append(players, play(t, e, id(1, i, 1)))
			ids = append(ids, claim(t, e, "w").ID)
			players[i].slot.take(time.Millisecond) // no claim expires meanwhile
		}
		for _, id := range []string{ids[1], ids[2], ids[3]} { // below the half of the bound all may go on
			if n, refusal := callInACircle(t, e, id, 4); refusal != nil {
				t.Fatalf("%s: %v after %d calls", id, refusal, n)
			}
		}
		n, refusal := callInACircle(t, e, ids[1], 100)
		if refusal == nil || refusal.Code != protocol.CodeBusy || refusal.Detail["bound"] != BoundRollouts {
			t.Fatalf("above its share: %v after %d calls", refusal, n)
		}
		if b := e.Bounds()[0]; !b.Binding || b.Refused != 1 {
			t.Errorf("bounds %+v: want the one that binds, and one call refused", b)
		}
		if n, refusal = callInACircle(t, e, ids[4], 2); refusal != nil {
			t.Errorf("below its share: %v after %d calls", refusal, n)
		}
		if n, refusal = callInACircle(t, e, ids[0], 100); refusal == nil || refusal.Code != protocol.CodeTooLarge || n < 5 {
			t.Fatalf("the oldest: %v after %d calls, want its own bound", refusal, n)
		}
		if <-players[0].done; players[0].err == nil {
			t.Error("the oldest has no error")
		}
		if n, refusal = callInACircle(t, e, ids[1], 100); refusal == nil || refusal.Code != protocol.CodeTooLarge || n == 0 {
			t.Errorf("the next oldest: %v after %d calls, want it to go on to its own bound", refusal, n)
		}
		for i, id := range ids[2:] {
			go e.Finish(t.Context(), id, protocol.FinishRequest{Worker: "w", Reward: new(float32(1))})
			if <-players[i+2].done; players[i+2].err != nil {
				t.Errorf("%s is lost: %v", id, players[i+2].err)
			}
		}
		for i := range int32(5) {
			e.Logged(id(1, i, 1), true)
		}
		if b := e.Bounds()[0]; b.Held != 0 {
			t.Errorf("%d bytes are held in the end", b.Held)
		}
	})
}

// TestRoomOfNumberedTurns: a worker's own turns count as an agent's do.
func TestRoomOfNumberedTurns(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := open(t, func(o *Options) { o.RoomBytesMax, o.RolloutBytesMax = 1<<20, 2<<10 })
		play(t, e, id(1, 0, 1))
		c := claim(t, e, "w")
		prompt := []int32{20}
		for turn := range 10 {
			reply, err := e.Sample(t.Context(), c.ID, protocol.SampleRequest{Worker: "w", Turn: turn, Prompt: prompt})
			if refusal, ok := errors.AsType[*protocol.Refusal](err); ok && turn > 0 && refusal.Code == protocol.CodeTooLarge && refusal.Detail["outcome"] == "too large" {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			prompt = append(prompt, reply.Tokens...)
		}
		t.Error("ten turns in 2 KiB")
	})
}
