package sim_test

import (
	"slices"
	"testing"

	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/looptest"
	"github.com/headway-rl/headway/observe/metrics"
)

// beside observes beside the recorder.
type beside struct {
	metrics.Beside
	observe func(ev *loop.Event, m *metrics.Measured, actions []loop.Action)
}

func (b beside) Observe(ev *loop.Event, m *metrics.Measured, actions []loop.Action) {
	b.observe(ev, m, actions)
}

// What is requested from outside moves settings, once a step and at polls, in merged runs and in others; a poll sees
// as many rollouts as are in flight.
func TestSteer(t *testing.T) {
	for _, general := range []bool{false, true} {
		s := fed
		s.rules = func(c *loop.Config) {
			c.Control = &loop.Control{}
			c.Control.Ranges[loop.SettingSlots] = loop.Range{Least: 4, Most: float64(c.Concurrency())}
		}
		polls, slots, moves := 0, 0, 0
		s.sim = func(c *sim.Config) {
			c.Warmup, c.PollNS = 0, 5e9
			if general {
				c.Speed = func(int, bool) float64 { return 1 }
			}
			c.Steer = func(seen sim.Seen) []sim.Request {
				if seen.Engines != nil {
					polls++
					running, tokens := 0, int64(0)
					for _, e := range seen.Engines {
						running, tokens = running+e.Running, tokens+e.Tokens
					}
					if seen.Made > 20 && (running != 8 || tokens <= 0) {
						t.Errorf("general %v: %d rollouts in flight with %d tokens, want 8 and some", general, running, tokens)
					}
					return nil
				}
				if seen.Made == 10 {
					slots = 8
					return []sim.Request{{Setting: loop.SettingSlots, Value: 8}}
				}
				return nil
			}
			c.Observe = func(ev loop.Event, _, _ int64, actions []loop.Action) {
				for _, a := range actions {
					if a.Kind == loop.SettingChanged && a.Reason == loop.ReasonRequested {
						if moves++; a.Value != 8 || ev.Kind != loop.SettingRequested {
							t.Errorf("general %v: %v after %v", general, a, ev)
						}
					}
				}
			}
		}
		run(t, s.config(t))
		if polls == 0 || slots != 8 || moves != 1 {
			t.Errorf("general %v: %d polls and %d moves, want some and 1", general, polls, moves)
		}
	}
	bad := fed.config(t)
	bad.Steer = func(sim.Seen) []sim.Request { return nil }
	if bad.Validate() == nil {
		t.Error("steering is accepted without ranges")
	}
}

// Tokens by version add up to what is known of them otherwise, merged or not, interrupted or not.
func TestTokensByVersion(t *testing.T) {
	for name, change := range map[string]func(c *sim.Config){
		"merged":  func(*sim.Config) {},
		"general": func(c *sim.Config) { c.Speed = func(int, bool) float64 { return 1 } },
		"restart": func(c *sim.Config) { c.Loop.Sync, c.SyncNS = loop.SyncRestart, 2e9 },
	} {
		s := fed
		several := 0
		s.sim = func(c *sim.Config) {
			c.TokenVersions = true
			change(c)
			c.Beside = beside{observe: func(ev *loop.Event, m *metrics.Measured, _ []loop.Action) {
				if ev.Kind != loop.RolloutScored {
					return
				}
				tokens, sum := int64(0), int64(0)
				for _, v := range m.ByVersion {
					tokens, sum = tokens+v.Tokens, sum+v.Tokens*int64(v.Version)
				}
				if tokens != int64(ev.Tokens) || sum != m.VersionTokens {
					t.Fatalf("%s: %v of %d tokens with the sum %d", name, m.ByVersion, ev.Tokens, m.VersionTokens)
				}
				if !slices.IsSortedFunc(m.ByVersion, func(a, b metrics.VersionTokens) int { return int(a.Version - b.Version) }) {
					t.Fatalf("%s: %v is in no order", name, m.ByVersion)
				}
				if len(m.ByVersion) > 1 {
					several++
				}
			}}
		}
		run(t, s.config(t))
		if several == 0 {
			t.Errorf("%s: no rollout spans versions", name)
		}
	}
}

// A loop whose goal counts tokens counts those that were made, by the version that made them: merged or not, through
// interruptions and times of the environment.
func TestLoopCountsTokens(t *testing.T) {
	for name, change := range map[string]func(c *sim.Config){
		"merged":      func(*sim.Config) {},
		"general":     func(c *sim.Config) { c.Speed = func(int, bool) float64 { return 1 } },
		"restart":     func(c *sim.Config) { c.Loop.Sync, c.SyncNS = loop.SyncRestart, 2e9 },
		"environment": func(c *sim.Config) { c.Work = outside{c.Work} },
	} {
		s := fed
		s.rules = func(c *loop.Config) {
			c.Control = &loop.Control{Share: 0.5, Within: 0, Tokens: true, Window: 16}
			c.Control.Ranges[loop.SettingLive] = loop.Range{Least: 2, Most: 1000}
		}
		s.sim = func(c *sim.Config) {
			change(c)
			shares, batches, mixed := looptest.TokenShares{}, 0, 0
			c.Beside = beside{observe: func(ev *loop.Event, m *metrics.Measured, actions []loop.Action) {
				share, trained := shares.Observe(ev, m.ByVersion, actions)
				if !trained {
					return
				}
				if got := m.Control.LastShare; got != share {
					t.Fatalf("%s: the loop counts a share of %g of no lag, want %g", name, got, share)
				}
				if batches++; share > 0 && share < 1 {
					mixed++
				}
			}}
			t.Cleanup(func() {
				if batches == 0 || mixed == 0 {
					t.Errorf("%s: %d batches, %d of several ages", name, batches, mixed)
				}
			})
		}
		run(t, s.config(t))
	}
}

// outside gives every rollout a time of its environment, some a long one.
type outside struct{ sim.Work }

func (w outside) Rollout(r sim.Rollout) sim.Response {
	out := w.Work.Rollout(r)
	out.EnvironmentNS = 1e9 * int64(1+10*(r.Sample%2))
	return out
}
