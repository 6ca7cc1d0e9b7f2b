package sim

import (
	"math"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/metrics"
)

// Request asks for a setting's value from outside, as somebody who watches a run would.
type Request struct {
	// Setting of loop.Config.Control whose range leaves something to choose.
	Setting loop.Setting
	// Value it is to have.
	Value float64
}

// Seen is what somebody outside sees of a run.
type Seen struct {
	// Made is the trainer's version, NowNS the virtual time.
	Made  loop.Version
	NowNS int64
	// Scored counts rollouts since the start of the run.
	Scored int64
	// Engines are what each engine has. Nil but at a poll.
	Engines []EngineLoad
}

// EngineLoad is what an engine's own metrics say.
type EngineLoad struct {
	// Running counts its rollouts, Tokens those that they have generated so far, which its cache holds.
	Running int
	Tokens  int64
	// Lost: it is gone.
	Lost bool
}

// Steer moves settings of the loop from outside: asked once the run has started, after every train step, and every
// Config.PollNS. The requests it returns are delivered at once, in order.
type Steer func(seen Seen) []Request

// startSteering asks for the first time.
func (r *runner) startSteering() {
	if r.cfg.Steer == nil {
		return
	}
	r.steer(false)
	r.schedulePoll()
}

// schedulePoll marks the time of the next poll, by an event that only the runner sees.
func (r *runner) schedulePoll() {
	if r.cfg.PollNS > 0 {
		r.schedule(loop.Event{Time: r.now + r.cfg.PollNS, Kind: loop.SettingRequested})
	}
}

// steer asks, and delivers what is requested.
func (r *runner) steer(poll bool) {
	if r.cfg.Steer == nil || r.done {
		return
	}
	seen := Seen{Made: r.l.Version(), NowNS: r.now, Scored: r.events - int64(r.l.Version())}
	if poll {
		seen.Engines = r.loads()
	}
	for _, request := range r.cfg.Steer(seen) {
		r.deliver(loop.Request(request.Setting, request.Value, r.now), 0, metrics.Measured{})
	}
}

// loads are what every engine has now.
func (r *runner) loads() []EngineLoad {
	loads := make([]EngineLoad, len(r.cfg.Loop.EngineSlots))
	for i := range loads {
		loads[i].Lost = r.l.Lost(i)
	}
	if m := r.merged; m != nil {
		for i := range m.slots {
			if s := &m.slots[i]; s.group != 0 {
				loads[s.engine].Running++
				loads[s.engine].Tokens += m.made(int64(s.tokens), s.lastToken(), float64(r.now))
			}
		}
		return loads
	}
	for i := range r.slots {
		if s := &r.slots[i]; s.group != 0 {
			loads[s.engine].Running++
			loads[s.engine].Tokens += r.engines[s.engine].has(s, r.now)
		}
	}
	return loads
}

// has is how many tokens a rollout in one of the engine's slots has generated.
func (e *engine) has(s *slot, now int64) int64 {
	if s.phase > prefilling {
		return int64(s.counted)
	}
	left := min(math.Ceil((s.work-e.workDone(now))/s.tokenNS-aStep), float64(s.tokens))
	return max(int64(s.tokens)-max(int64(left), 0), int64(s.counted))
}
