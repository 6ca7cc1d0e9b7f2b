package diagnosis

import (
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/track"
)

// fleet follows which versions the engines serve.
type fleet struct {
	newest loop.Version // the trainer's
	at     int64
	// Since the beginning of the window: time, time in which engines differed, Σ of the
	// difference over time, in versions by ns, and the most; losses, and Σ of the time that engines were lost or served nothing yet.
	sinceNS, differNS int64
	skewSum           float64
	skewMax           loop.Version
	losses            int64
	goneNS            int64
	// engines are what each did since then.
	engines []engineTally
}

// engineTally is what one engine did in the window.
type engineTally struct {
	losses, goneNS int64
	// rollouts that were scored on it and not resumed, their tokens and the time that it generated them in.
	rollouts, tokens, generateNS int64
}

// to counts the time up to now, in which the engines were as they are given.
func (f *fleet) to(now int64, engines []track.Engine) {
	dt := now - f.at
	if f.at = now; dt <= 0 {
		return
	}
	f.sinceNS += dt
	low, high := loop.NoVersion, loop.NoVersion
	for i := range engines {
		e := &engines[i]
		switch {
		case e.Away:
		case e.Gone:
			f.goneNS += dt
			f.engines[i].goneNS += dt
		default:
			if low == loop.NoVersion || e.Served < low {
				low = e.Served
			}
			high = max(high, e.Served)
		}
	}
	if high == loop.NoVersion {
		return
	}
	if high > low {
		f.differNS += dt
		f.skewSum += float64(high-low) * float64(dt)
		f.skewMax = max(f.skewMax, high-low)
	}
}

func (f *fleet) lost(engine int32) {
	if f.knows(engine) {
		f.losses++
		f.engines[engine].losses++
	}
}

func (f *fleet) made(v loop.Version) { f.newest = max(f.newest, v) }

func (f *fleet) knows(engine int32) bool { return engine >= 0 && int(engine) < len(f.engines) }

// generated takes what a scored rollout took of the engine that it was on.
func (f *fleet) generated(engine int32, tokens, ns int64) {
	if f.knows(engine) {
		f.engines[engine].rollouts++
		f.engines[engine].tokens += tokens
		f.engines[engine].generateNS += ns
	}
}

// reset begins a window.
func (f *fleet) reset() {
	f.sinceNS, f.differNS, f.skewSum, f.skewMax, f.losses, f.goneNS = 0, 0, 0, 0, 0, 0
	clear(f.engines)
}

// figures are the share of the time in which engines served different versions, and the mean difference in it, in
// versions.
func (f *fleet) figures() (differShare, skew float64) {
	if f.sinceNS == 0 || f.differNS == 0 {
		return 0, 0
	}
	return float64(f.differNS) / float64(f.sinceNS), f.skewSum / float64(f.differNS)
}
