package parts

import (
	"fmt"

	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/observe/report"
)

// From these shares on a run says that its machine did not keep the pace it was given: of steps that
// were late, and of time that was lost by them for good.
const (
	lateMax     = 0.1
	slowdownMax = 0.01
)

// Paces is how a run's devices kept to the least times of their steps.
type Paces struct {
	// Decode is of all engines together, Train of the trainer.
	Decode port.Pace `json:"decode"`
	Train  port.Pace `json:"train"`
}

// TakePaces returns how the job's devices kept to their pace since the last call.
func (p *Parts) TakePaces() Paces {
	var k Paces
	for _, e := range p.Engines {
		if paced, ok := port.As[port.Paced](e); ok {
			k.Decode.Add(paced.TakePace())
		}
	}
	if paced, ok := port.As[port.Paced](p.Trainer); ok {
		k.Train.Add(paced.TakePace())
	}
	return k
}

// Warnings say which side the machine could not keep at its pace.
func (k Paces) Warnings() []string {
	var out []string
	for _, side := range []struct {
		name, key string
		pace      port.Pace
	}{{"decode", "engines.decode_step_s", k.Decode}, {"train", "trainer.step_s", k.Train}} {
		if p := side.pace; p.LateShare() > lateMax || p.Slowdown() > slowdownMax {
			out = append(out, fmt.Sprintf("%s of the %s steps took longer than %s, and all together %s longer: this machine does not keep that pace; raise it, or leave the machine more to spare",
				report.Share(p.LateShare()), side.name, side.key, report.Share(p.Slowdown())))
		}
	}
	return out
}
