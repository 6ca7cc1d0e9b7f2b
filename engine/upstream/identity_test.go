package upstream

import (
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

func TestTrap4NoIDIsTheBeginningOfAnother(t *testing.T) {
	draw := rand.New(rand.NewPCG(4, 4))
	var ids []string
	nonces := []string{newNonce(), newNonce()}
	for i := range 400 {
		id := port.RolloutID{Group: loop.GroupID(draw.Uint64() >> uint(draw.IntN(64))), Sample: int32(draw.IntN(12)), Attempt: int32(draw.IntN(3))}
		if i < 40 { // numbers that begin with each other
			id = port.RolloutID{Group: 1, Sample: int32(i), Attempt: 1}
		}
		req := port.GenerateRequest{Rollout: id, Turn: draw.IntN(20)}
		ids = append(ids, requestID(nonces[i%2], &req, int64(i)))
	}
	for i, a := range ids {
		if len(a) != len(ids[0]) || strings.Index(a, "|") != len(a)-1 {
			t.Fatalf("the id %q has another form than %q", a, ids[0])
		}
		for k, b := range ids {
			if i != k && strings.HasPrefix(a, b) {
				t.Fatalf("%q begins with %q", a, b)
			}
		}
	}
}

// Stopping one response stops no other, at a server that aborts by the beginning of ids.
func TestTrap4AnAbortStopsOneResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		f.caps.VersionSpans = true // so that the abort, not the connection, ends it
		e := newFakeEngine(t, f, nil)
		var group sync.WaitGroup
		for i := range 40 {
			group.Go(func() {
				req := request(i, 30)
				if i == 1 {
					req.Check = func(tokens []int32) bool { return len(tokens) == 5 }
				}
				g, err := e.Generate(t.Context(), req)
				if want := map[bool]int{true: 5, false: 30}[i == 1]; err != nil || len(g.Tokens) != want {
					t.Errorf("response %d has %d tokens, want %d (%v)", i, len(g.Tokens), want, err)
				}
			})
		}
		group.Wait()
		if s := e.Status(); s.Retries != 0 || len(f.aborted) != 1 {
			t.Errorf("%d aborted, %d retries", len(f.aborted), s.Retries)
		}
	})
}
