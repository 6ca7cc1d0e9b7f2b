package upstream

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// Whatever goes wrong, and in whatever order: every response ends, complete or with a clear error
// and what there is; no token is at a wrong place or counts as another version than its own; and
// the server is left neither paused nor busy.
func TestRandomFaults(t *testing.T) {
	seeds := uint64(4)
	if os.Getenv("HEADWAY_LONG") != "" {
		seeds = 120
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testRandomFaults(t, seed) })
		})
	}
}

func testRandomFaults(t *testing.T, seed uint64) {
	draw := rand.New(rand.NewPCG(seed, 17))
	f := newFakeServer(t)
	f.caps.Pause, f.caps.VersionSpans, f.caps.Score = seed%2 == 0, seed%4 < 2, seed%3 == 0
	faults := rand.New(rand.NewPCG(seed, 18))
	var injected atomic.Int64
	f.fault = func(int, fakeCall) fault {
		f.mu.Lock()
		defer f.mu.Unlock()
		w := randomFault(faults)
		if w != (fault{}) {
			injected.Add(1)
		}
		return w
	}
	e := newFakeEngine(t, f, func(o *Options) { o.Silent = 5 * time.Second })
	stop := make(chan struct{})
	var group sync.WaitGroup
	var whole, lost atomic.Int64
	for i := range 12 {
		seed := draw.Uint64()
		group.Go(func() {
			one := &player{t: t, e: e, sample: i, draw: rand.New(rand.NewPCG(seed, 1)), whole: &whole, lost: &lost}
			for one.goesOn(stop) {
				one.play()
			}
		})
	}
	version := loop.Version(0)
	for range 25 {
		time.Sleep(time.Duration(1+draw.IntN(900)) * time.Millisecond)
		if draw.IntN(8) == 0 {
			f.kill()
			time.Sleep(time.Duration(draw.IntN(3000)) * time.Millisecond)
			f.restart(99)
		}
		if draw.IntN(4) == 0 {
			path := []string{"/pause", "/resume", "/update", "/version", "/score"}[draw.IntN(5)]
			f.set(func() { f.failing[path] = 1 + draw.IntN(2) })
		}
		version++
		if err := e.Load(t.Context(), version); err == nil {
			_ = e.Switch(t.Context(), version, draw.IntN(2) == 0)
		}
	}
	close(stop)
	f.set(func() { clear(f.failing); f.fault = func(int, fakeCall) fault { return fault{} } })
	serveVersion(t, e, version)
	group.Wait()
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.paused || len(f.active) != 0 {
		t.Errorf("the server is left paused (%v) or busy with %d", f.paused, len(f.active))
	}
	t.Logf("%d faults; %d whole responses, %d that went on elsewhere; %+v", injected.Load(), whole.Load(), lost.Load(), e.Status())
	if whole.Load() == 0 || injected.Load() == 0 {
		t.Error("nothing was tried")
	}
}

// randomFault is none at all in half of the cases.
func randomFault(draw *rand.Rand) fault {
	at := 1 + draw.IntN(60)
	switch draw.IntN(18) {
	case 0:
		return fault{status: []int{500, 503, 429}[draw.IntN(3)]}
	case 1:
		return fault{refuse: true}
	case 2:
		return fault{breaks: true, after: at}
	case 3:
		return fault{ends: true, after: at}
	case 4:
		return fault{says: `{"E":"a fault"}`, after: at}
	case 5:
		return fault{hangs: true, after: at}
	case 6:
		return fault{noMark: true}
	case 7:
		return fault{transit: time.Duration(draw.IntN(30)) * time.Millisecond}
	case 8:
		return fault{says: `{"F":"abort"}`, after: at}
	}
	return fault{}
}

// player plays responses, one after the other, interrupted now and then and resumed.
type player struct {
	t           *testing.T
	e           *Engine
	sample      int
	draw        *rand.Rand
	whole, lost *atomic.Int64
	turn        int
}

func (p *player) goesOn(stop chan struct{}) bool {
	select {
	case <-stop:
		return false
	default:
		return true
	}
}

func (p *player) play() {
	req := request(p.sample, 20+p.draw.IntN(200))
	req.Turn = p.turn
	p.turn++
	for {
		interrupt := make(chan struct{})
		req.Interrupt = interrupt
		req.OnTokens = nil
		if p.draw.IntN(3) == 0 {
			req.OnTokens = closeAfter(1+p.draw.IntN(60), interrupt)
		}
		g, err := p.e.Generate(p.t.Context(), req)
		checkTokens(p.t, g, fakePromptOf)
		switch {
		case err == nil && !g.Interrupted:
			if len(g.Tokens) != req.MaxTokens || !g.Truncated {
				p.t.Errorf("a whole response of %d tokens, want %d", len(g.Tokens), req.MaxTokens)
			}
			p.whole.Add(1)
			return
		case err == nil:
		case errors.Is(err, port.ErrEngineDown):
			p.lost.Add(1)
			time.Sleep(time.Second)
		default: // a response of its own bad luck, or a lie
			time.Sleep(time.Second)
			return
		}
		req.Prefix = g.Prefix()
		if len(g.Tokens) >= req.MaxTokens {
			return
		}
	}
}
