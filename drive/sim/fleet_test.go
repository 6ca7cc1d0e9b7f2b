package sim_test

import (
	"testing"

	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
)

// Engines that are asked for come after their time and go when they are not wanted, and what runs goes
// on; one that is gone when it is to come comes when it is back, or not for now.
func TestEnginesComeAndGo(t *testing.T) {
	const start = 7e9
	for name, c := range map[string]struct {
		losses []sim.EngineLoss
		comes  bool
	}{
		"there":         {nil, true},
		"back meantime": {[]sim.EngineLoss{{Engine: 2, AtNS: 1, DownNS: 60e9}}, true},
		"gone for good": {[]sim.EngineLoss{{Engine: 2, AtNS: 1}}, false},
	} {
		s := fed
		s.rules = func(r *loop.Config) {
			r.EngineSlots, r.EnginesStart, r.Control = []int{16, 16, 16}, 1, &loop.Control{}
			r.Control.Ranges[loop.SettingEngines] = loop.Range{Least: 1, Most: 3}
		}
		asked, joined, released, unavailable := map[int32]int64{}, map[int32]int64{}, map[int32]int{}, 0
		active := map[int32]int{}
		s.sim = func(cfg *sim.Config) {
			cfg.Warmup, cfg.EngineStartNS, cfg.Faults.Plan = 0, start, c.losses
			cfg.Steer = func(seen sim.Seen) []sim.Request {
				switch seen.Made {
				case 10:
					return []sim.Request{{Setting: loop.SettingEngines, Value: 3}}
				case 80:
					return []sim.Request{{Setting: loop.SettingEngines, Value: 1}}
				}
				return nil
			}
			cfg.Observe = func(ev loop.Event, _, _ int64, actions []loop.Action) {
				switch {
				case ev.Kind == loop.EngineJoined && ev.Attempt > 0:
					joined[ev.Engine] = ev.Time
				case ev.Kind == loop.EngineUnavailable:
					unavailable++
				}
				for _, a := range actions {
					switch a.Kind {
					case loop.AcquireEngine:
						asked[a.Engine] = ev.Time
					case loop.ReleaseEngine:
						released[a.Engine]++
					case loop.StartRollout:
						active[a.Engine]++
					}
				}
			}
		}
		res := run(t, s.config(t))
		if joined[1]-asked[1] != start || active[1] == 0 || released[1] != 1 || released[0] != 0 || res.Ledger.Failed != 0 {
			t.Errorf("%s: asked %v, joined %v, released %v, started %v, ledger %+v", name, asked, joined, released, active, res.Ledger)
		}
		if came := active[2] > 0; came != c.comes || (unavailable == 0) != c.comes || c.losses == nil && joined[2]-asked[2] != start {
			t.Errorf("%s: engine 2 asked at %d, joined at %d, played %d; %d times unavailable", name, asked[2], joined[2], active[2], unavailable)
		}
	}
}
