package looptest

import (
	"fmt"
	"math/rand/v2"

	"github.com/headway-rl/headway/loop"
)

// stamps holds the stamps of leased groups against all that was told of first tokens: loop and model could agree on one that is
// above a token.
type stamps struct {
	rng *rand.Rand
	// begun is the version under which each slot's attempt began there, and told the oldest first token of an attempt.
	begun []loop.Version
	told  map[attempt]loop.Version
}

type attempt struct {
	group           loop.GroupID
	sample, attempt int32
}

func newStamps(p *Plan) stamps {
	return stamps{rng: rand.New(rand.NewPCG(p.Seed, 0x7374616d70)), begun: make([]loop.Version, p.Config.Concurrency()), told: map[attempt]loop.Version{}}
}

// made is the version of a first token that is told while its engine serves one. Some were made before the engine's last switch.
func (s *stamps) made(slot int32, served loop.Version) loop.Version {
	if uint(slot) < uint(len(s.begun)) && s.begun[slot] < served && s.rng.IntN(4) == 0 {
		return s.begun[slot]
	}
	return served
}

// tell notes a first token that is about to be told of an attempt that is under way.
func (s *stamps) tell(c *Checker, ev *loop.Event) {
	if ev.Kind != loop.FirstToken || uint(ev.Slot) >= uint(len(c.slots)) {
		return
	}
	at := c.slots[ev.Slot]
	if !at.taken || at.unwanted || at.group != ev.Group || at.sample != ev.Sample || at.attempt != ev.Attempt {
		return
	}
	key := attempt{ev.Group, ev.Sample, ev.Attempt}
	if v, ok := s.told[key]; !ok || ev.Version < v {
		s.told[key] = ev.Version
	}
}

// check reports a leased group whose stamp is above a first token of it.
func (s *stamps) check(c *Checker, actions []loop.Action) error {
	for _, a := range actions {
		switch a.Kind {
		case loop.StartRollout, loop.ResumeRollout:
			s.begun[a.Slot] = a.Version
		case loop.GroupLeased:
			for k, smp := range c.groups[a.Group].samples {
				if v, ok := s.told[attempt{a.Group, int32(k), smp.attempt}]; ok && smp.state == scored && v >= 0 && v < a.StartVersion {
					return fmt.Errorf("%v is stamped v%d, and sample %d of it has a token of v%d", a, a.StartVersion, k, v)
				}
			}
		}
	}
	return nil
}
