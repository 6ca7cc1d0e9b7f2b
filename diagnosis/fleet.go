package diagnosis

import "github.com/headway-rl/headway/loop"

// fleet follows which version each engine serves.
type fleet struct {
	served []loop.Version
	gone   []bool
	newest loop.Version // the trainer's
	at     int64
	// Since the beginning of the window: time, time in which engines differed, Σ of the
	// difference over time, Σ of the newest engine's lag behind the trainer over time, the most.
	sinceNS, differNS   int64
	skewSum, laggingSum float64
	skewMax             loop.Version
	losses              int64
	goneNS              int64
	// engines are what each did since then.
	engines []engineTally
}

// engineTally is what one engine did in the window.
type engineTally struct {
	losses, goneNS int64
	// rollouts that were scored on it and not resumed, their tokens and the time that it generated them in.
	rollouts, tokens, generateNS int64
}

func newFleet(engines int) fleet {
	return fleet{served: make([]loop.Version, engines), gone: make([]bool, engines), engines: make([]engineTally, engines)}
}

// to counts the time up to now.
func (f *fleet) to(now int64) {
	dt := now - f.at
	if f.at = now; dt <= 0 {
		return
	}
	f.sinceNS += dt
	low, high := loop.NoVersion, loop.NoVersion
	for i, v := range f.served {
		if f.gone[i] {
			f.goneNS += dt
			f.engines[i].goneNS += dt
			continue
		}
		if low == loop.NoVersion || v < low {
			low = v
		}
		high = max(high, v)
	}
	if high == loop.NoVersion {
		return
	}
	if high > low {
		f.differNS += dt
		f.skewSum += float64(high-low) * float64(dt)
		f.skewMax = max(f.skewMax, high-low)
	}
	f.laggingSum += float64(max(f.newest-high, 0)) * float64(dt)
}

func (f *fleet) switched(engine int32, v loop.Version) {
	if f.knows(engine) {
		f.served[engine] = max(f.served[engine], v)
	}
}

func (f *fleet) lost(engine int32) {
	if f.knows(engine) {
		f.losses++
		f.engines[engine].losses++
		f.gone[engine] = true
	}
}

func (f *fleet) joined(engine int32) {
	if f.knows(engine) {
		f.gone[engine] = false
	}
}

func (f *fleet) made(v loop.Version) { f.newest = max(f.newest, v) }

func (f *fleet) knows(engine int32) bool { return engine >= 0 && int(engine) < len(f.served) }

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
	f.sinceNS, f.differNS, f.skewSum, f.laggingSum, f.skewMax, f.losses, f.goneNS = 0, 0, 0, 0, 0, 0, 0
	clear(f.engines)
}

// figures: differShare is the share of the time in which engines served different versions, skew the
// mean difference in it, behind by how much the newest engine was behind the trainer.
func (f *fleet) figures() (differShare, skew, behind float64) {
	if f.sinceNS == 0 {
		return 0, 0, 0
	}
	if f.differNS > 0 {
		skew = f.skewSum / float64(f.differNS)
	}
	return float64(f.differNS) / float64(f.sinceNS), skew, f.laggingSum / float64(f.sinceNS)
}
