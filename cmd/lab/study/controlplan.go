package study

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/headway-rl/headway/loop"
)

// planSeed is the first seed of the search and checkSeed that of its check, apart from those that arms are judged by.
const (
	planSeed   = 1_000_001
	checkSeed  = 2_000_001
	checkSeeds = 8
)

// controlPlace is a level of a drift in a world: settings tried there serve every goal.
type controlPlace struct {
	world ControlWorld
	drift ControlDrift
	level float64
}

// bench simulates the stationary state at a place, and knows what it has simulated.
type bench struct {
	place  controlPlace
	course course
	// seeds of a simulation of the search; tokens are told apart by version.
	seeds  int
	tokens bool
	known  map[benchRun][]controlSeries
	failed error
}

// benchRun names simulations by what is fixed in them, settings or AReaL's η, and by their first seed.
type benchRun struct {
	settings settings
	eta      float64
	seed     int
}

// bench makes one.
func (s *controlStudy) bench(p controlPlace) *bench {
	steps, seeds := s.opt.planSteps(p.drift)
	return &bench{place: p, seeds: seeds, tokens: slices.ContainsFunc(s.opt.Goals, func(g ControlGoal) bool { return g.Tokens }),
		course: course{begin: steps + 2*controlWindow, settle: 2 * controlWindow, frozen: true, level: p.level},
		known:  map[benchRun][]controlSeries{}}
}

// runs simulates with so many seeds.
func (b *bench) runs(key benchRun, seeds int, of func() arm) []controlSeries {
	list, known := b.known[key]
	if known {
		return list
	}
	for seed := range seeds {
		series, err := controlTrial{b.place.world, b.place.drift, b.course, uint64(key.seed + seed), of(), b.tokens}.run()
		if err != nil {
			b.failed = err
			return nil
		}
		list = append(list, series)
	}
	b.known[key] = list
	return list
}

// of says how simulations do under a goal.
func (b *bench) of(g ControlGoal, runs []controlSeries) (p planned) {
	n := float64(len(runs))
	for i := range runs {
		one := score(&runs[i], g, b.place.drift, b.course)
		p.Held += one.Held / n
		p.RolloutsPerS += one.RolloutsPerS / n
	}
	return p
}

// fixed says how settings do, from a first seed on.
func (b *bench) fixed(g ControlGoal, at settings, from, seeds int) planned {
	p := b.of(g, b.runs(benchRun{settings: at, seed: from}, seeds, func() arm { return fixedArm(at) }))
	p.Settings = at
	return p
}

// bounded says how AReaL's bound does.
func (b *bench) bounded(g ControlGoal, eta float64, from, seeds int) planned {
	return b.of(g, b.runs(benchRun{eta: eta, seed: from}, seeds, func() arm { return boundedArm(eta) }))
}

// plan searches the oracle's settings, and what is best of the arms that are told something of it.
func (s *controlStudy) plan(ctx context.Context) error {
	if err := s.planOracle(ctx); err != nil {
		return err
	}
	told, err := inParallel(ctx, len(s.cases), s.sims.Progress, func(at int) (toldArms, error) {
		k := s.cases[at]
		key := fmt.Sprintf("told|%s|%s|%v|quick %v", k.world.Name, k.drift.Name, k.goal, s.opt.Quick)
		return kept(s.sims.Plans, key, func() (toldArms, error) { return s.planTold(at) })
	})
	for _, t := range told {
		s.hindsight, s.etas = append(s.hindsight, t.Hindsight), append(s.etas, t.Eta)
	}
	return err
}

// planOracle searches for every level of every drift.
func (s *controlStudy) planOracle(ctx context.Context) error {
	var places []controlPlace
	for _, g := range s.grounds {
		for _, level := range g.drift.levels(s.opt.planLevels()) {
			places = append(places, controlPlace{g.world, g.drift, level})
		}
	}
	found, err := inParallel(ctx, len(places), s.sims.Progress, func(i int) ([]planned, error) {
		p := places[i]
		key := fmt.Sprintf("plan|%s|%s|%g|%v|quick %v", p.world.Name, p.drift.Name, p.level, s.opt.Goals, s.opt.Quick)
		return kept(s.sims.Plans, key, func() ([]planned, error) { return s.planPlace(p) })
	})
	if err != nil {
		return err
	}
	for i, p := range places {
		for k, g := range s.opt.Goals {
			at := slices.Index(s.cases, controlCase{p.world, p.drift, g})
			s.plans[at] = append(s.plans[at], plannedLevel{p.level, found[i][k]})
		}
	}
	return nil
}

// planPlace searches for every goal.
func (s *controlStudy) planPlace(p controlPlace) (best []planned, err error) {
	b := s.bench(p)
	for _, g := range s.opt.Goals {
		best = append(best, search(
			func(at settings) planned { return b.fixed(g, at, planSeed, b.seeds) },
			func(at settings) planned { return b.fixed(g, at, checkSeed, checkSeeds) }, g.start()))
	}
	return best, b.failed
}

// toldArms are the arms that do not follow a drift, but are told what is best.
type toldArms struct {
	Hindsight planned `json:"hindsight"`
	Eta       float64 `json:"eta"`
}

// planTold searches them for a case.
func (s *controlStudy) planTold(at int) (t toldArms, err error) {
	k := s.cases[at]
	var benches []*bench
	for _, level := range s.plans[at] {
		benches = append(benches, s.bench(controlPlace{k.world, k.drift, level.Level}))
	}
	start := benches[0]
	t.Eta = bestEta(
		func(eta float64) planned { return start.bounded(k.goal, eta, planSeed, start.seeds) },
		func(eta float64) planned { return start.bounded(k.goal, eta, checkSeed, checkSeeds) })
	for i, candidate := range hindsights(s.plans[at]) {
		p := planned{Settings: candidate, Held: math.Inf(1)}
		seconds := 0.0
		for _, b := range benches {
			one := b.fixed(k.goal, candidate, checkSeed, b.seeds)
			p.Held = min(p.Held, one.Held)
			seconds += 1 / one.RolloutsPerS
		}
		p.RolloutsPerS = float64(len(benches)) / seconds
		if i == 0 || p.better(t.Hindsight) {
			t.Hindsight = p
		}
	}
	for _, b := range benches {
		if b.failed != nil {
			return t, b.failed
		}
	}
	return t, nil
}

// hindsights are the settings of which the best is kept throughout: those of the plan's levels, and the smallest of
// each, under the longest hold.
func hindsights(plan []plannedLevel) (list []settings) {
	least := plan[0].Settings
	for _, p := range plan {
		for _, m := range moved {
			if m == loop.SettingHold {
				least[m] = max(least[m], p.Settings[m])
			} else {
				least[m] = min(least[m], p.Settings[m])
			}
		}
		list = append(list, p.Settings)
	}
	list = append(list, least)
	slices.SortFunc(list, func(a, b settings) int { return slices.Compare(a[:], b[:]) })
	return slices.Compact(list)
}

// asFast is the share of a throughput from which on another is as good.
const asFast = 0.999

// bestEta is the largest η, in eighths, with which a goal is held, or the smallest that is as fast: more staleness is
// not slower, and at some point no faster. try and check are as search has them. It is 0 where none holds.
func bestEta(try, check func(eta float64) planned) float64 {
	const parts = 8
	between := func(yes, no int, keeps func(n int) bool) int {
		for no-yes > 1 || yes-no > 1 {
			if mid := (yes + no) / 2; keeps(mid) {
				yes = mid
			} else {
				no = mid
			}
		}
		return yes
	}
	most := parts*(controlLive/controlGroups-1) + 1 // that many groups are never live
	holds := between(0, most, func(n int) bool { return try(float64(n) / parts).keeps() })
	for holds > 0 && !check(float64(holds)/parts).keeps() {
		holds--
	}
	fastest := check(float64(holds) / parts).RolloutsPerS
	return float64(between(holds, -1, func(n int) bool { return check(float64(n)/parts).RolloutsPerS >= asFast*fastest })) / parts
}
