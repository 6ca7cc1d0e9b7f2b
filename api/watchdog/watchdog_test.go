package watchdog

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
)

var options = Options{AfterS: 60, LeaseS: 60, ClaimS: 60}

// healthy is a run in full swing: a batch is filling, the trainer asks.
func healthy() View {
	return View{Status: protocol.Status{
		State: "running", Version: 7, Steps: 100,
		Ledger:  protocol.Ledger{Ledger: loop.Ledger{Admitted: 1000, InFlight: 60, Waiting: 10, Queued: 20, Trained: 900, Filtered: 10}},
		Queue:   protocol.Queue{Groups: 5, CapacityGroups: 32, LiveGroups: 20, BatchGroups: 16},
		Engines: []protocol.Engine{{Name: "e0", Version: 7, State: "serving", Active: 30, Slots: 32}, {Name: "e1", Version: 7, State: "serving", Active: 30, Slots: 32}},
		Trainer: protocol.Trainer{Name: "t", State: "idle", SilentS: 1},
		Workers: protocol.Workers{Known: 3, Claimed: 60},
	}, RemoteWorkers: true, PeriodS: 5, RolloutS: 2, Engines: []Engine{{Oldest: "g70-s1-a0", OldestS: 4}, {Oldest: "g71-s0-a0", OldestS: 2}}}
}

// cases have each code come first, with its subject and what its message says.
var cases = map[string]struct {
	change        func(v *View)
	code, subject string
	says          string
	// also come after it, in any order.
	also []string
}{
	"nothing known": {func(*View) {}, "unknown", "", "under way: 60 rollouts", nil},
	"one of each": {func(v *View) {
		v.Status.Ledger.InFlight, v.Status.Engines = 1, v.Status.Engines[:1]
	}, "unknown", "", "under way: 1 rollout. Look", nil},
	"disk full": {func(v *View) {
		v.Status.Disk = protocol.Disk{Full: true, LogBytes: 1 << 30, PayloadBytes: 8 << 30, BytesMax: 9 << 30}
		v.Status.Trainer.State = "absent"
	}, "disk_full", "", "9 GiB of 9 GiB", []string{"no_trainer"}},
	"payloads at their bound, a batch queued": {func(v *View) {
		v.Status.Disk = protocol.Disk{Full: true, PayloadBytes: 1 << 20, PayloadBytesMax: 1 << 20, BytesMax: 1 << 30}
		v.Status.Queue.Groups = 16
	}, "disk_full", "", "1 MiB of the 1 MiB that store.nats.payload_bytes_max allows, and rollouts wait. It has room again", nil},
	"payloads at their bound, less than a batch": {func(v *View) {
		v.Status.Disk = protocol.Disk{Full: true, PayloadBytes: 1<<20 - 500, PayloadBytesMax: 1 << 20, BytesMax: 1 << 30}
	}, "disk_full", "", "holds 5 groups of the 16 that a batch takes, so that no batch will make room; raise it", nil},
	"disk full, and all that waits for it": {func(v *View) {
		v.Status.Disk.Full, v.Holding = true, true
		v.Status.Ledger.InFlight, v.Status.Workers, v.Status.Queue.Groups, v.Status.Queue.CapacityGroups = 0, protocol.Workers{Known: 3}, 8, 8
		v.Status.Engines[0].State, v.Engines[1].OldestS = "loading", 400
	}, "disk_full", "", "the store has no room", nil},
	"trainer never connected": {func(v *View) { v.Status.Trainer = protocol.Trainer{State: "absent"} }, "no_trainer", "", "has ever connected. Start one", nil},
	"trainer gone, queue full": {func(v *View) {
		v.Status.Trainer = protocol.Trainer{Name: "t", State: "absent", SilentS: 300}
		v.Status.Queue.Groups, v.Status.Queue.HeldGroups, v.BatchS = 32, 4, 290
	}, "no_trainer", "t", "last heard of 5m0s ago, and a batch has waited for 4m50s", []string{"queue_full"}},
	"batch offered and nobody takes it": {func(v *View) {
		v.Status.Trainer = protocol.Trainer{Name: "t", State: "offered", SilentS: 100}
		v.BatchS = 90
	},
		"no_trainer", "t", "1m40s ago", nil},
	"leased and silent": {func(v *View) {
		v.Status.Trainer = protocol.Trainer{Name: "t", State: "training", Lease: 9, SilentS: 45}
		v.BatchS, v.Status.Queue.Groups = 90, 32
	}, "silent_trainer", "t", "holds batch 9 and has said nothing for 45s", []string{"queue_full"}},
	"leased and renewing for long": {func(v *View) {
		v.Status.Trainer, v.BatchS = protocol.Trainer{Name: "t", State: "training", Lease: 9, SilentS: 3}, 600
	}, "silent_trainer", "t", "renews its lease on batch 9 and has published nothing for 10m0s", nil},
	"trainer at a service": {func(v *View) { v.Status.Trainer, v.BatchS = protocol.Trainer{State: "service", Lease: 9}, 600 }, "silent_trainer", "", "the train step at the service has run for 10m0s", nil},
	"embedded trainer":     {func(v *View) { v.Status.Trainer, v.BatchS = protocol.Trainer{State: "embedded", Lease: 9}, 600 }, "silent_trainer", "", "inside this process has run for 10m0s", nil},
	"no worker":            {func(v *View) { v.Status.Workers = protocol.Workers{Offered: 64} }, "no_worker", "", "64 rollouts waiting for an environment worker", nil},
	"no worker, and rollouts that have waited for one for long": {func(v *View) {
		v.Status.Workers = protocol.Workers{Offered: 60}
		v.Engines = []Engine{{Oldest: "g1-s0-a1", OldestS: 400}}
	}, "no_worker", "", "60 rollouts waiting", nil},
	"lost worker": {func(v *View) { v.Status.Workers.Silent = []string{"w3"} }, "lost_worker", "w3", "silent for more than 30s", nil},
	"one engine lost, of two": {func(v *View) {
		v.Status.Engines[1].State, v.Engines[1].Error = "lost", "connection refused"
	}, "engine_lost", "e1", "(1 of 2 gone): connection refused", nil},
	"all engines lost": {func(v *View) {
		v.Status.Engines[0].State, v.Status.Engines[1].State = "lost", "quarantined"
		v.Status.Trainer.State = "absent"
	}, "engine_lost", "e0", "(2 of 2 gone)", []string{"engine_lost", "no_trainer"}},
	"engines load": {func(v *View) { v.Status.Engines[0].State, v.Status.Engines[1].State = "loaded", "loading" }, "engine_paused", "e1", "loading for 1m0s and serves version 7", []string{"engine_paused"}},
	"nobody sends weights": {func(v *View) {
		v.Status.Engines[0].State, v.Status.Engines[1].State = "loading", "loading"
		v.Status.Sender = &protocol.Sender{State: "absent", Waiting: []string{"e0", "e1"}}
		v.Status.Trainer = protocol.Trainer{State: "absent"}
	}, "no_sender", "", "2 of 2 engines wait for them, the first of them e0. Start that process", []string{"engine_paused", "engine_paused", "no_trainer"}},
	"the sender is silent": {func(v *View) {
		v.Status.Engines[1].State = "loading"
		v.Status.Sender = &protocol.Sender{Name: "t", State: "lost", SilentS: 90, Waiting: []string{"e1"}}
	}, "no_sender", "t", "was last heard of 1m30s ago, and 1 of 2 engines wait", []string{"engine_paused"}},
	"an engine cannot reach the sender": {func(v *View) {
		v.Status.Engines[1].State = "loading"
		v.Status.Sender = &protocol.Sender{Name: "t", State: "serving", Joining: []protocol.SenderJoining{{Engine: "e0", ForS: 3}, {Engine: "e1", Address: "10.0.0.7:29500", ForS: 70, Late: true}}}
	}, "not_joined", "e1", "1 of 2 engines have not joined a group with the sender, by which they take their weights. Engine e1: it was to reach the sender at 10.0.0.7:29500, the address that the sender gave, and has not for 1m10s", []string{"engine_paused"}},
	"a sender that meets no engine": {func(v *View) {
		v.Status.Engines[0].State, v.Status.Engines[1].State = "loading", "loading"
		v.Status.Sender = &protocol.Sender{Name: "t", State: "serving", Joining: []protocol.SenderJoining{{Engine: "e0", ForS: 60, Late: true}, {Engine: "e1", ForS: 50, Late: true}}}
		v.Status.Trainer = protocol.Trainer{State: "absent"}
	}, "not_joined", "e0", "Engine e0: sender t was told 1m0s ago to meet it, and has not come", []string{"engine_paused", "engine_paused", "no_trainer"}},
	"engines that join in time": {func(v *View) {
		v.Status.Sender = &protocol.Sender{Joining: []protocol.SenderJoining{{Engine: "e0", ForS: 3}}}
	}, "unknown", "", "nothing that is known", nil},
	"a sender that nobody waits for": {func(v *View) { v.Status.Sender = &protocol.Sender{State: "absent"} }, "unknown", "", "nothing that is known", nil},
	"engine empties":                 {func(v *View) { v.Status.Engines[0].State = "emptying" }, "engine_paused", "e0", "running rollouts to end", nil},
	"hold":                           {func(v *View) { v.Holding = true }, "hold", "", "held for 1m0s", nil},
	"straggler":                      {func(v *View) { v.Engines[1] = Engine{Oldest: "g12-s3-a1", OldestS: 400} }, "straggler", "g12", "rollout g12-s3-a1 of group g12 has run for 6m40s at engine e1, where 2s is usual", nil},
	"queue full":                     {func(v *View) { v.Status.Queue.Groups = 32 }, "queue_full", "", "full with 32 groups", nil},
	"short for ever": {func(v *View) {
		v.Status.Ledger.InFlight, v.Status.Workers, v.Status.Queue.Groups = 0, protocol.Workers{Known: 3}, 15
	}, "short_batch", "", "it is 1 short for ever", nil},
	"queue below a batch": {func(v *View) {
		v.Status.Ledger.InFlight, v.Status.Workers, v.Status.Queue.Groups, v.Status.Queue.CapacityGroups = 0, protocol.Workers{Known: 3}, 8, 8
	}, "short_batch", "", "raise queue.factor", []string{"queue_full"}},
}

// Each code has a case in which it comes first.
func TestFindings(t *testing.T) {
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			v := healthy()
			c.change(&v)
			findings := findingsOf(v, options)
			first := findings[0]
			if first.Code != c.code || first.Subject != c.subject || !strings.Contains(first.Message, c.says) {
				t.Errorf("first is %+v, want %s of %q: %s", first, c.code, c.subject, c.says)
			}
			var also []string
			for _, f := range findings[1:] {
				also = append(also, f.Code)
			}
			slices.Sort(also)
			if !slices.Equal(also, c.also) {
				t.Errorf("then come %v, want %v", also, c.also)
			}
		})
	}
}

// A fleet that is gone is not a thousand findings, and the same view gives the same words.
func TestFindingsAreFew(t *testing.T) {
	v := healthy()
	v.Status.Engines = nil
	for range 1000 {
		v.Status.Engines = append(v.Status.Engines, protocol.Engine{Name: "e", State: "lost"})
	}
	first := findingsOf(v, options)
	if len(first) != findingsMax || !slices.Equal(first, findingsOf(v, options)) {
		t.Errorf("%d findings", len(first))
	}
}

// Every code that the protocol names has a case, and every message says what to do.
func TestCodesAreCovered(t *testing.T) {
	covered := map[string]bool{}
	advice := regexp.MustCompile(`^[a-z0-9].{20,}[.;:] ?[A-Za-z]`)
	for name, c := range cases {
		covered[c.code] = true
		v := healthy()
		c.change(&v)
		for _, f := range findingsOf(v, options) {
			if !advice.MatchString(f.Message) {
				t.Errorf("%s: %s: %q says not what to do", name, f.Code, f.Message)
			}
		}
	}
	text, err := os.ReadFile("../protocol/status.go")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(text), "// Code is ")
	list, _, _ = strings.Cut(list, "Code string")
	codes := regexp.MustCompile(`[a-z]+_[a-z]+|straggler|hold|unknown`).FindAllString(list, -1)
	if len(codes) != 13 {
		t.Errorf("the protocol names %d codes: %v", len(codes), codes)
	}
	for _, code := range codes {
		if !covered[code] {
			t.Errorf("no case has %s come first", code)
		}
	}
}

// step is what a scene does at a second, or what it expects then.
type step struct {
	at     float64
	change func(v *View)
	// want is the first finding's code, "" for no stall; since what SinceS is.
	want  string
	since float64
	stop  bool
}

// A scene is told by the second; between its steps the guard looks every second.
func TestScenes(t *testing.T) {
	none := func(*View) {}
	for name, steps := range map[string][]step{
		"a trainer dies, and comes back": {
			{0, none, "", 0, false},
			{30, func(v *View) { v.Status.Version, v.Status.Ledger.Trained = 8, 916 }, "", 0, false},
			{31, func(v *View) { v.Status.Trainer.State, v.Status.Trainer.SilentS = "absent", 61; v.BatchS = 60 }, "", 0, false},
			{89, none, "", 0, false},
			{90, none, "no_trainer", 60, false},
			{100, none, "no_trainer", 70, false},
			{101, func(v *View) { v.Status.Version = 9 }, "", 0, false},
			{161, none, "no_trainer", 60, false},
		},
		"a batch fills slowly": {
			{50, func(v *View) { v.Status.Ledger.Queued++ }, "", 0, false},
			{100, func(v *View) { v.Status.Ledger.Queued++ }, "", 0, false},
			{150, func(v *View) { v.Status.Ledger.Waiting++ }, "", 0, false},
			{209, none, "", 0, false},
			{210, none, "unknown", 60, false},
		},
		"groups are filtered for ever": {
			{1, func(v *View) { v.Status.Queue.Groups = 15 }, "", 0, false},
			{60, func(v *View) { v.Status.Ledger.Filtered += 800; v.Status.Ledger.Admitted += 800 }, "short_batch", 60, false},
			{600, func(v *View) { v.Status.Ledger.Filtered += 800 }, "short_batch", 600, true},
		},
		"a queue that drops makes no progress": {
			{10, func(v *View) { v.Status.Trainer = protocol.Trainer{State: "absent"}; v.Status.Queue.Groups = 32 }, "", 0, false},
			{11, func(v *View) { v.Status.Ledger.Queued -= 8; v.Status.Ledger.Evicted += 8 }, "", 0, false},
			{12, func(v *View) { v.Status.Ledger.Queued += 8 }, "", 0, false},
			{60, none, "no_trainer", 60, false},
		},
		"a trainer hangs beside a full queue that drops": {
			{0, func(v *View) {
				v.Status.Trainer, v.Status.Queue.Groups = protocol.Trainer{Name: "t", State: "training", Lease: 9}, 32
			}, "", 0, false},
			{30, func(v *View) { v.Status.Ledger.Waiting++; v.Status.Ledger.Evicted += 30_000 }, "", 0, false}, // the most so far
			{59, func(v *View) { v.Status.Ledger.Waiting++; v.BatchS = 61 }, "", 0, false},
			{60, none, "silent_trainer", 60, false},
		},
		"slow steps are usual": {
			{0, func(v *View) { v.PeriodS = 100 }, "", 0, false},
			{299, none, "", 0, false},
			{300, none, "unknown", 300, false},
			{2999, none, "unknown", 2999, false},
			{3000, none, "unknown", 3000, true},
		},
		"engines that switch make progress": {
			{40, func(v *View) { v.Status.Engines[0].State = "loading" }, "", 0, false},
			{59, func(v *View) { v.Status.Engines[0].State, v.Status.Engines[0].Version = "serving", 8 }, "", 0, false},
			{100, func(v *View) { v.Status.Engines[1].State = "loading" }, "", 0, false},
			{118, none, "", 0, false},
			{120, none, "unknown", 61, false},
			{160, none, "engine_paused", 101, false},
		},
		"a drain is no stall":        {{10, func(v *View) { v.Status.State = "draining" }, "", 0, false}, {500, none, "", 0, false}, {501, func(v *View) { v.Status.State = "running" }, "", 0, false}, {559, none, "", 0, false}, {560, none, "unknown", 60, false}},
		"a run that is done":         {{10, func(v *View) { v.Status.Version = 100 }, "", 0, false}, {500, none, "", 0, false}},
		"a run without an end":       {{0, func(v *View) { v.Status.Steps = 0 }, "", 0, false}, {60, none, "unknown", 60, false}},
		"admission is held for long": {{30, func(v *View) { v.Holding = true }, "", 0, false}, {60, none, "unknown", 60, false}, {90, none, "hold", 90, false}},
	} {
		t.Run(name, func(t *testing.T) {
			guard, v := New(options), healthy()
			steps := slices.Clone(steps)
			for second := 0.0; len(steps) > 0; second++ {
				v.NowS = 1000 + second
				if second == steps[0].at {
					steps[0].change(&v)
				}
				stall, stop := guard.Look(v)
				if second != steps[0].at {
					continue
				}
				s := steps[0]
				steps = steps[1:]
				switch {
				case s.want == "" && stall != nil:
					t.Errorf("at %g: %+v, want none", s.at, *stall)
				case s.want != "" && (stall == nil || stall.Findings[0].Code != s.want || stall.SinceS != s.since || stop != s.stop):
					t.Errorf("at %g: %+v, stop %v, want %s for %g s, stop %v", s.at, stall, stop, s.want, s.since, s.stop)
				}
			}
		})
	}
}

// An engine that a weight sync waits for is named within seconds, and until when, though the run goes on.
func TestHeld(t *testing.T) {
	server := &protocol.Server{URL: "http://gpu-1", LeftS: 700}
	loads := func(v *View) {
		v.SyncTarget, v.Together = 8, true
		v.Status.Engines[0].State, v.Status.Engines[1].State = "loading", "loading"
	}
	for name, c := range map[string]struct {
		change func(v *View) // at 10 s; loads was at 0
		at     float64       // when it is said, 0 for never
		says   []string
	}{
		"one still loads": {func(v *View) { v.Status.Engines[0].State = "loaded" }, 25,
			[]string{"engine e1 has been loading version 8 for 25s. No engine switches before all are ready for it (sync.switch: fleet)"}},
		"one still switches": {func(v *View) {
			v.Status.Engines[0] = protocol.Engine{Name: "e0", State: "serving", Version: 8}
			v.Status.Engines[1].State, v.Status.Engines[1].Server = "switching", server
		}, 25, []string{"engine e1 has been switching to version 8 for 15s, which is given up in 11m40s (engines.*.update_s). No engine is given a newer version", "at http://gpu-1"}},
		"all take as long as the last time, and then longer": {func(v *View) { v.Status.Sync = &protocol.Sync{LoadS: 40} }, 55,
			[]string{"engine e0 has been loading version 8 for 55s; engine e1 has been loading"}},
		"all empty as long as the last time, and then longer": {func(v *View) {
			v.Status.Sync = &protocol.Sync{LoadS: 1, WaitS: 30, SwitchS: 2}
			for i := range v.Status.Engines {
				v.Status.Engines[i].State, v.Status.Engines[i].Server = "emptying", server
			}
		}, 55, []string{"engine e0 has waited for its rollouts to end before version 8 for 45s", ". It waits for its running rollouts to end"}},
		"one that has joined is not waited for": {func(v *View) { v.Status.Engines[0].State, v.Status.Engines[1].State = "loaded", "joining" }, 0, nil},
		"one without a sender": {func(v *View) {
			v.Status.Engines[0].State, v.Status.Sender = "loaded", &protocol.Sender{Waiting: []string{"e1"}}
		}, 0, nil},
		"it ends":                     {func(v *View) { v.SyncTarget = -1 }, 0, nil},
		"all load for the first time": {func(*View) {}, 45, []string{"engine e0 has been loading version 8 for 45s"}},
	} {
		t.Run(name, func(t *testing.T) {
			guard, v := New(options), healthy()
			v.SyncTarget = -1
			said := 0.0
			for second := range 59 {
				v.NowS = 1000 + float64(second)
				v.Status.Ledger.Trained++
				switch second {
				case 0:
					loads(&v)
				case 10:
					c.change(&v)
				}
				stall, _ := guard.Look(v)
				held := guard.Held(v)
				if stall != nil || held == nil || said > 0 {
					continue
				}
				said = float64(second)
				for _, want := range c.says {
					if held.Code != "engine_paused" || !strings.Contains(held.Message, want) {
						t.Errorf("at %d: %+v, want %q", second, *held, want)
					}
				}
			}
			if said != c.at {
				t.Errorf("it is said at %g s, want %g", said, c.at)
			}
		})
	}
}

// A clock that goes back begins the count anew, and does not complain.
func TestClockGoesBack(t *testing.T) {
	guard, v := New(options), healthy()
	for _, c := range []struct {
		at   float64
		want bool
	}{{1000, false}, {1061, true}, {500, false}, {559, false}, {561, true}} {
		v.NowS = c.at
		if stall, _ := guard.Look(v); (stall != nil) != c.want {
			t.Errorf("at %g: %+v", c.at, stall)
		}
	}
}

// Syncs that follow one another at once, of which none takes long, hold nothing up: whoever looks never sees an engine
// do anything but load.
func TestNothingIsHeldUpBySyncsOneAfterTheOther(t *testing.T) {
	guard, v := New(options), healthy()
	v.Status.Sync = &protocol.Sync{LoadS: 10}
	for second := range 120 {
		v.NowS = 1000 + float64(second)
		v.SyncTarget = loop.Version(8 + second/10)
		for i := range v.Status.Engines {
			v.Status.Engines[i].State, v.Status.Engines[i].Version = "loading", v.SyncTarget-1
		}
		guard.Look(v)
		if held := guard.Held(v); held != nil {
			t.Fatalf("at %d: %+v", second, *held)
		}
	}
}

// findingsOf judges a run that is known to stand still: it takes everything in the view to have been so for as long as Options.AfterS.
func findingsOf(v View, o Options) []protocol.Finding {
	f := facts{View: v, stillS: o.patience(v), holdS: o.AfterS, engineS: make([]float64, len(v.Status.Engines))}
	for i := range f.engineS {
		f.engineS[i] = o.AfterS
	}
	return findings(f, o)
}
