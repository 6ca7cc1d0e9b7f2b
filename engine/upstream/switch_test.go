package upstream

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// Responses go on through switches, and every token counts as what sampled it: where the server
// can pause and where it cannot, whether it says so itself or not, with tokens late in transit.
func TestSwitchesInFlight(t *testing.T) {
	for _, pause := range []bool{true, false} {
		for _, spans := range []bool{true, false} {
			for _, transit := range []time.Duration{0, 8 * time.Millisecond} {
				t.Run(fmt.Sprintf("pause_%v_spans_%v_transit_%v", pause, spans, transit), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						f := newFakeServer(t)
						f.caps.Pause, f.caps.VersionSpans, f.caps.Score = pause, spans, true
						f.fault = func(int, fakeCall) fault { return fault{transit: transit} }
						e := newFakeEngine(t, f, nil)
						testInFlight(t, f, e, 6)
						s := e.Status()
						if s.Disagreements != 0 || (s.Named > 0) != spans || (s.Cuts > 0) == pause || s.Retries != 0 || s.Version != 6 {
							t.Errorf("%+v", s)
						}
					})
				})
			}
		}
	}
}

// testInFlight samples while the engine goes through switches to version last.
func testInFlight(t *testing.T, f *fakeServer, e *Engine, last loop.Version) {
	var group sync.WaitGroup
	spread := map[int]bool{}
	var mu sync.Mutex
	for i := range 16 {
		group.Go(func() {
			for range 2 {
				first := loop.NoVersion
				req := request(i, 200+i)
				req.FirstToken = func(v loop.Version) { first = v }
				g, err := e.Generate(t.Context(), req)
				if err != nil {
					t.Error(err)
					return
				}
				checkTokens(t, g, fakePromptOf)
				if first != g.Versions[0] {
					t.Errorf("the first token was told as of version %d, it is of %d", first, g.Versions[0])
				}
				mu.Lock()
				spread[len(slices.Compact(slices.Clone(g.Versions)))] = true
				mu.Unlock()
			}
		})
	}
	for v := loop.Version(1); v <= last; v++ {
		time.Sleep(503 * time.Millisecond)
		serveVersion(t, e, v)
	}
	group.Wait()
	synctest.Wait()
	if len(spread) == 1 && spread[1] {
		t.Error("no response has seen two versions")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.paused || len(f.active) != 0 {
		t.Errorf("the server is left paused (%v) or with %d responses", f.paused, len(f.active))
	}
}

// Prefixes that old weights have cached are told apart by a salt that no other process uses.
func TestSaltsFollowVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		salts := map[string]bool{}
		for range 2 {
			e := newFakeEngine(t, f, nil)
			for v := range loop.Version(3) {
				serveVersion(t, e, v)
				for range 2 {
					if _, err := e.Generate(t.Context(), request(0, 2)); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		for _, call := range f.calls {
			salts[call.Salt] = true
		}
		if len(salts) != 6 || salts[""] {
			t.Errorf("salts %v", salts)
		}
		keep := newFakeEngine(t, f, func(o *Options) { o.Cache = CacheKeep })
		if _, err := keep.Generate(t.Context(), request(0, 2)); err != nil || f.calls[len(f.calls)-1].Salt != "" {
			t.Errorf("a cache to be kept is salted by %q (%v)", f.calls[len(f.calls)-1].Salt, err)
		}
	})
}

func TestTrap7AFailedSwitchLeavesNothingPaused(t *testing.T) {
	for name, c := range map[string]struct {
		failing map[string]int
		change  func(f *fakeServer)
		known   bool // the weights are known still: nothing was asked of the server
	}{
		"the pause fails":              {failing: map[string]int{"/pause": 1}, known: true},
		"the update fails":             {failing: map[string]int{"/update": 1}},
		"the update and a resume fail": {failing: map[string]int{"/update": 1, "/resume": 3}},
		"nobody says what it served":   {failing: map[string]int{"/version": 1}, known: true},
		"nobody says what it serves":   {failing: map[string]int{"/version": -1}},
		"the update is without effect": {change: func(f *fakeServer) { f.lazy = true }},
		"the scores fail":              {failing: map[string]int{"/score": 1}},
		"resumes fail for long":        {failing: map[string]int{"/resume": 9}},
		"the pause does not pause":     {change: func(f *fakeServer) { f.sham = true }},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeServer(t)
				f.caps.Score = true
				e := newFakeEngine(t, f, func(o *Options) { o.Silent = time.Minute })
				var group sync.WaitGroup
				group.Go(func() {
					g, err := e.Generate(t.Context(), request(0, 900))
					if name == "the pause does not pause" {
						if !errors.Is(err, ErrLied) {
							t.Errorf("ended with %v: nobody knows what sampled its tokens", err)
						}
						return
					}
					if err != nil {
						t.Error(err)
					}
					checkTokens(t, g, fakePromptOf)
				})
				time.Sleep(101 * time.Millisecond)
				f.set(func() {
					f.failing = map[string]int{}
					for path, times := range c.failing {
						f.failing[path] = times
					}
					if c.change != nil {
						c.change(f)
					}
				})
				if err := e.Load(t.Context(), 1); err != nil {
					t.Fatal(err)
				}
				if err := e.Switch(t.Context(), 1, false); err == nil {
					t.Fatal("the switch has succeeded")
				}
				if s := e.Status(); (s.State == "serving") != c.known {
					t.Errorf("%+v", s)
				}
				time.Sleep(30 * time.Second / 4)
				f.mu.Lock()
				paused, active := f.paused, len(f.active)
				f.mu.Unlock()
				if paused && c.failing["/resume"] < 5 || !c.known && active != 0 {
					t.Errorf("paused %v, with %d responses", paused, active)
				}
				f.set(func() { f.lazy, f.sham = false, false })
				time.Sleep(30 * time.Second)
				if f.mu.Lock(); f.paused {
					t.Error("it is still paused")
				}
				f.mu.Unlock()
				serveVersion(t, e, 2)
				group.Wait()
			})
		})
	}
}

// A server that has died is lost soon, wherever in a switch that is, and not waited for as one that is slow to
// resume. One that is back by then is not lost: its weights are unknown, and the next switch makes them known.
func TestASwitchOfAServerThatDies(t *testing.T) {
	for name, at := range map[string]string{"before the pause": "", "in the update": "update", "in the resume": "resume"} {
		for _, back := range []time.Duration{0, 500 * time.Millisecond} {
			t.Run(fmt.Sprintf("%s_back_%v", strings.ReplaceAll(name, " ", "_"), back), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFakeServer(t)
					f.mute = true // nobody but the switch can know that it is another one
					e := newFakeEngine(t, f, nil)
					if err := e.Load(t.Context(), 1); err != nil {
						t.Fatal(err)
					}
					f.stuck, f.asked = "/"+at, make(chan struct{})
					var died sync.WaitGroup
					died.Go(func() {
						if at != "" {
							<-f.asked
						}
						f.kill()
						f.set(func() { f.stuck = "" })
						if back > 0 {
							time.Sleep(back)
							f.restart(77)
						}
					})
					if at == "" {
						synctest.Wait()
					}
					began := time.Now()
					err := e.Switch(t.Context(), 1, false)
					if err == nil || errors.Is(err, port.ErrEngineDown) != (back == 0) || time.Since(began) > 3*time.Second {
						t.Errorf("after %v: %v", time.Since(began), err)
					}
					state := map[bool]string{true: "down", false: "unknown"}[back == 0]
					if s := e.Status(); s.State != state || s.Version != loop.NoVersion || s.Losses != int64(map[bool]int{true: 1}[back == 0]) {
						t.Errorf("%+v", s)
					}
					died.Wait()
					if back == 0 {
						f.restart(77)
					}
					serveVersion(t, e, 1)
					g, err := e.Generate(t.Context(), request(0, 5))
					if err != nil {
						t.Fatal(err)
					}
					checkTokens(t, g, fakePromptOf)
				})
			})
		}
	}
}

// A switch that its caller gives up is undone all the same.
func TestASwitchThatIsGivenUpResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		e := newFakeEngine(t, f, nil)
		if err := e.Load(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := e.Switch(ctx, 1, false); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("ended with %v", err)
		}
		time.Sleep(time.Second) // what nobody waits for any more
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.paused {
			t.Error("the server is left paused")
		}
	})
}

// responses begins twenty responses, of so many tokens each. Those that end without an error have the tokens that their stamps say.
func responses(t *testing.T, e *Engine, tokens func(i int) int) *sync.WaitGroup {
	var group sync.WaitGroup
	for i := range 20 {
		group.Go(func() {
			g, err := e.Generate(t.Context(), request(i, tokens(i)))
			if err == nil {
				checkTokens(t, g, fakePromptOf)
			} else if !errors.Is(err, ErrLied) && !errors.Is(err, port.ErrEngineDown) {
				t.Error(err)
			}
		})
	}
	return &group
}

// A response that ends while its server should stand still is believed only when it did.
func TestAShamPauseSpoilsWhatEndsMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		f.sham = true
		e := newFakeEngine(t, f, nil)
		group := responses(t, e, func(i int) int { return 50 * (i + 1) % 990 })
		time.Sleep(101 * time.Millisecond)
		if err := e.Load(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		if err := e.Switch(t.Context(), 1, false); !errors.Is(err, ErrLied) {
			t.Errorf("ended with %v", err)
		}
		group.Wait()
	})
}

// tellingDialect is that of a server that says whether it is paused.
type tellingDialect struct{ fakeDialect }

func (d tellingDialect) Paused(context.Context, *Server, *Capabilities) (paused, known bool, err error) {
	d.f.mu.Lock()
	defer d.f.mu.Unlock()
	return d.f.paused, true, nil
}

// A server that another process resumes in a switch goes on with weights of which nobody here knows when they came: the
// switch fails, and with it what has ended meanwhile.
func TestAServerThatAnotherResumesInASwitch(t *testing.T) {
	for _, after := range []time.Duration{100 * time.Millisecond, 300 * time.Millisecond} { // in the update, and behind it
		synctest.Test(t, func(t *testing.T) {
			f := newFakeServer(t)
			e := newFakeEngine(t, f, func(o *Options) { o.Dialect = tellingDialect{fakeDialect{f}} })
			group := responses(t, e, func(i int) int { return 10 * (i + 1) })
			time.Sleep(101 * time.Millisecond)
			if err := e.Load(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(after, func() { f.resume(nil) })
			if err := e.Switch(t.Context(), 1, false); !errors.Is(err, haltSpoilt) {
				t.Errorf("resumed after %v, the switch ended with %v", after, err)
			}
			group.Wait()
		})
	}
}

func TestUpdatesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		e := newFakeEngine(t, f, func(o *Options) { o.Update = time.Minute })
		f.set(func() { f.step = 10 * time.Minute })
		if err := e.Load(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		if err := e.Switch(t.Context(), 1, true); err == nil || !strings.Contains(err.Error(), "longer than 1m0s") {
			t.Errorf("ended with %v", err)
		}
		f.set(func() { f.step = time.Millisecond })
		time.Sleep(time.Hour * 4) // the update that nobody waits for any more
	})
}

// With unknown weights calls wait for a switch, and no longer than a server may be silent.
func TestUnknownWeightsAreNotSampledFrom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		e := newFakeEngine(t, f, nil)
		f.set(func() { f.failing["/update"] = 1 })
		if err := e.Load(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		if err := e.Switch(t.Context(), 1, false); err == nil {
			t.Fatal("the switch has succeeded")
		}
		g, err := e.Generate(t.Context(), request(0, 5))
		if !errors.Is(err, port.ErrEngineDown) || len(g.Tokens) != 0 {
			t.Errorf("%d tokens, %v", len(g.Tokens), err)
		}
		interrupt := make(chan struct{})
		time.AfterFunc(time.Second, func() { close(interrupt) })
		req := request(0, 5)
		req.Interrupt = interrupt
		if g, err := e.Generate(t.Context(), req); err != nil || !g.Interrupted {
			t.Errorf("interrupted while it waits: %+v, %v", g, err)
		}
		if len(f.calls) != 0 {
			t.Errorf("the server was asked %d times", len(f.calls))
		}
	})
}

func TestASwitchNeedsItsLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		e := newFakeEngine(t, f, nil)
		if err := e.Switch(t.Context(), 5, false); err == nil {
			t.Error("it switches to what was not loaded")
		}
		for name, damage := range map[string]func(dir string) error{
			"no config":       func(dir string) error { return os.Remove(filepath.Join(dir, "config.json")) },
			"no weights":      func(dir string) error { return os.Remove(filepath.Join(dir, "model.safetensors")) },
			"half of weights": func(dir string) error { return os.Truncate(filepath.Join(dir, "model.safetensors"), 40) },
			"another tensor": func(dir string) error {
				file := filepath.Join(dir, "model.safetensors")
				text, err := os.ReadFile(file)
				return errors.Join(err, os.WriteFile(file, []byte(strings.Replace(string(text), `"w"`, `"v"`, 1)), 0o644))
			},
			"another shape": func(dir string) error {
				file := filepath.Join(dir, "model.safetensors")
				text, err := os.ReadFile(file)
				return errors.Join(err, os.WriteFile(file, []byte(strings.Replace(string(text), `[2]`, `[1]`, 1)), 0o644))
			},
			"a lost shard": func(dir string) error {
				return os.WriteFile(filepath.Join(dir, "model.safetensors.index.json"), []byte(`{"weight_map":{"w":"a.safetensors"}}`), 0o644)
			},
			"an index that leads astray": func(dir string) error {
				return os.WriteFile(filepath.Join(dir, "model.safetensors.index.json"), []byte(`{"weight_map":{"w":"../x.safetensors"}}`), 0o644)
			},
		} {
			parent := t.TempDir()
			e.opt.Views = func(_ context.Context, v loop.Version) (string, error) {
				dir := writeView(t, parent, v)
				return dir, damage(dir)
			}
			if err := e.Load(t.Context(), 1); err == nil {
				t.Errorf("%s: it loads", name)
			}
			if err := e.Switch(t.Context(), 1, false); err == nil {
				t.Errorf("%s: it switches", name)
			}
		}
		if f.weights != 0 {
			t.Error("the server was asked to update")
		}
	})
}

// A process in whose place another may be changes no weights, also where that comes to be while the server pauses. It goes on with
// those that are there.
func TestASwitchOfAReplacedProcess(t *testing.T) {
	for name, test := range map[string]struct {
		pauses bool
		from   int // the question that is answered so, and those behind it
	}{"before the pause": {true, 1}, "behind the pause": {true, 2}, "before a cut": {false, 1}, "behind a cut": {false, 2}} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeServer(t)
			f.caps.Pause = test.pauses
			e := newFakeEngine(t, f, nil)
			parent, asked, lost := t.TempDir(), 0, errors.New("the lease was not renewed")
			e.opt.Views = func(_ context.Context, v loop.Version) (string, error) { return writeView(t, parent, v), nil }
			serveVersion(t, e, 1)
			e.opt.Replaced = func(context.Context) error {
				if asked++; asked >= test.from {
					return lost
				}
				return nil
			}
			if err := e.Load(t.Context(), 2); err != nil {
				t.Fatal(err)
			}
			if err := e.Switch(t.Context(), 2, false); !errors.Is(err, lost) || f.weights != 1 || f.paused || asked != test.from {
				t.Errorf("%s: %v, and the server has version %d (paused %v) after %d questions", name, err, f.weights, f.paused, asked)
			}
			if g, err := e.Generate(t.Context(), request(0, 3)); err != nil || g.Versions[0] != 1 {
				t.Errorf("%s: it samples %+v, %v", name, g, err)
			}
		})
	}
}

// The same weights under another version are no failure, though the scores stay.
func TestEqualWeightsVerify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		f.caps.Score = true
		e := newFakeEngine(t, f, nil)
		f.set(func() { f.lazy = true })
		views := e.opt.Views
		parent := t.TempDir()
		e.opt.Views = func(_ context.Context, v loop.Version) (string, error) {
			dir := writeView(t, parent, 0)
			other := filepath.Join(parent, "same"+Label(v))
			return other, os.CopyFS(other, os.DirFS(dir))
		}
		serveVersion(t, e, 1)
		e.opt.Views = views
		if err := e.Load(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
		if err := e.Switch(t.Context(), 2, false); !errors.Is(err, ErrLied) {
			t.Errorf("other weights without effect: %v", err)
		}
	})
}

func TestALackingServerIsRefusedWithItsFlag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		e := newBareEngine(t, f, func(o *Options) { o.Vocabulary = fakeVocab })
		for name, change := range map[string]func(*Capabilities){
			"--return-ids": func(c *Capabilities) {
				c.Missing = []Missing{{What: "no ids", Flag: "--return-ids", Fatal: true}}
			},
			"log-probs":     func(c *Capabilities) { c.Logprobs = false },
			"by disk":       func(c *Capabilities) { c.UpdateDisk = false },
			"another model": func(c *Capabilities) { c.Vocabulary = 12 },
		} {
			caps := f.caps
			change(&caps)
			f.caps, caps = caps, f.caps
			if _, err := e.Probe(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := e.Load(t.Context(), 0); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: %v", name, err)
			}
			f.caps = caps
		}
	})
}

func TestALoadOfAServerThatIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		f.kill()
		e := newBareEngine(t, f, nil)
		if err := e.Load(t.Context(), 0); !errors.Is(err, port.ErrEngineDown) {
			t.Errorf("ended with %v", err)
		}
	})
}

func TestDeliveryNoneServesVersion0(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		f.paused, f.caps.VersionSpans = true, true // by a process that died in a switch
		e := newFakeEngine(t, f, func(o *Options) { o.Delivery, o.Views = DeliveryNone, nil })
		g, err := e.Generate(t.Context(), request(0, 20))
		if err != nil {
			t.Fatal(err)
		}
		checkTokens(t, g, fakePromptOf)
		if g.Derived {
			t.Error("the server names its weights, and the versions count as derived")
		}
		if err := e.Load(t.Context(), 1); err == nil {
			t.Error("it loads version 1")
		}
	})
}
