package reproduce

import (
	"context"
	"fmt"
	"math"

	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/workload"
	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/observe/report"
	"github.com/headway-rl/headway/predict/hardware"
	"github.com/headway-rl/headway/predict/theory"
)

// matching is the published set-up of the throughput-matching case.
type matching struct {
	trainGPUs, rolloutGPUs           int
	trainer, generator               float64 // samples/s: of a busy trainer; delivered to it
	wait, mfu, discarded             float64 // shares
	batch, group, budget, contextCap int
}

// The rest of the set-up is in the table's source line.
func readMatching() (published, matching, error) {
	table, err := readTable("throughput_matching")
	if err != nil {
		return table, matching{}, err
	}
	v, err := table.values(0, "train_gpus", "rollout_gpus", "trainer_samples_per_s", "generator_samples_per_s", "trainer_wait_share", "mfu", "dispatched_discarded_share")
	if err != nil {
		return table, matching{}, err
	}
	return table, matching{int(v[0]), int(v[1]), v[2], v[3], v[4], v[5], v[6], 512, 16, 16, 32768}, nil
}

// What the case leaves open and a simulation needs.
const (
	matchingModel    = "qwen3-235b-a22b"
	matchingGPU      = "h200"
	matchingReplica  = 8 // GPUs: one node, the fewest that leave room for a cache beside the weights in bf16
	matchingTailness = 50
	matchingPrompt   = 2000 // tokens of a task's statement
)

// fleet is the rollout side as the hardware model has it.
type fleet struct {
	lengths *workload.Lengths
	replica hardware.Replica
	engines []int // slots of each
	slots   int
	// tokensPerS of one slot with all of its engine's generating.
	tokensPerS float64
}

// trainedTokens are the tokens a sample must have for the published MFU and trainer
// rate to be of the same run, without and with recomputed activations: from
// 6·N_active·tokens = MFU·peak·GPUs per second, or 8.
func (m matching) trainedTokens() (plain, recomputed float64, err error) {
	model, err := hardware.ModelNamed(matchingModel)
	if err != nil {
		return 0, 0, err
	}
	gpu, err := hardware.GPUNamed(matchingGPU)
	if err != nil {
		return 0, 0, err
	}
	trainer := hardware.Trainer{Model: model, GPU: gpu, GPUs: m.trainGPUs, MFU: m.mfu}
	plain = trainer.TokensPerS() / m.trainer
	trainer.Recompute = true
	return plain, trainer.TokensPerS() / m.trainer, nil
}

// fleet is what the rollout GPUs can do with samples of a mean length: whole replicas,
// as many slots as their cache holds, and the roofline's speed.
func (m matching) fleet(mean, tailness float64) (fleet, error) {
	model, err := hardware.ModelNamed(matchingModel)
	if err != nil {
		return fleet{}, err
	}
	gpu, err := hardware.GPUNamed(matchingGPU)
	if err != nil {
		return fleet{}, err
	}
	lengths, err := cappedMean(mean, tailness, m.contextCap)
	if err != nil {
		return fleet{}, err
	}
	f := fleet{lengths: lengths, replica: hardware.Replica{Model: model, GPU: gpu, GPUs: matchingReplica,
		PromptTokens: matchingPrompt, MeanTokens: lengths.Mean(), MeanSquareTokens: lengths.MeanSquare()}}
	slots, err := f.replica.Slots()
	if err != nil {
		return fleet{}, err
	}
	for range m.rolloutGPUs / matchingReplica {
		f.engines = append(f.engines, slots)
		f.slots += slots
	}
	f.tokensPerS = f.replica.SlotSpeed(float64(slots))
	return f, nil
}

// cappedMean are lognormal lengths whose mean after the cap is the given one.
func cappedMean(mean, tailness float64, limit int) (*workload.Lengths, error) {
	low, high := mean, float64(limit)
	for range 20 {
		if middle := (low + high) / 2; workload.LognormalLengths(middle, 1.3*tailness/100, limit).Mean() < mean {
			low = middle
		} else {
			high = middle
		}
	}
	lengths, err := lognormal(high, tailness, limit)
	if err == nil && math.Abs(lengths.Mean()/mean-1) > 0.01 {
		return nil, fmt.Errorf("reproduce: no lognormal of tailness %g capped at %d has a mean of %g", tailness, limit, mean)
	}
	return lengths, err
}

// arrangement is one way in which the published shares might come about.
type arrangement struct {
	name string
	f    fleet
	// tokensPerS of a slot; 0 is the fleet's by its roofline, by how many generate.
	tokensPerS float64
	// accepted is the share of groups that a filter passes.
	accepted float64
	// tools is the mean time of a rollout in its environment over that of its decoding, and
	// toolTail that time's tailness.
	tools, toolTail float64
}

// simulation of an arrangement under the published rules.
func (m matching) simulation(a arrangement, seed uint64, l length) (sim.Config, error) {
	acceptance, err := workload.NewAcceptance(a.accepted)
	if err != nil {
		return sim.Config{}, err
	}
	var service *workload.Times
	if a.tools > 0 {
		mean := a.tools * a.f.lengths.Mean() / a.f.tokensPerS
		if service, err = (workload.TimesSpec{Kind: workload.KindLognormal, MeanS: mean, Tailness: a.toolTail}).Build(); err != nil {
			return sim.Config{}, err
		}
	}
	step := float64(m.batch) / m.trainer
	cfg := sim.Config{
		// The rules of prime-rl: a queue without a bound that matters, no dispatch while a batch waits.
		Loop: loop.Config{GroupSize: m.group, BatchGroups: m.batch / m.group, EngineSlots: a.f.engines, QueueGroups: 16 * m.batch / m.group, PauseGroups: m.batch / m.group,
			Policy: loop.PolicyMax, MaxStaleness: loop.Version(m.budget), Abort: true, Sync: loop.SyncPause},
		Work:       sim.NewModelled(seed, a.f.lengths, service, acceptance, int64(math.Round(step*1e9))),
		NSPerToken: 1e9 / a.f.tokensPerS,
		Warmup:     l.warmup, Measured: l.measured,
	}
	if a.tokensPerS > 0 {
		cfg.NSPerToken = 1e9 / a.tokensPerS
		return cfg, nil
	}
	full := a.f.tokensPerS
	speeds := make([]float64, a.f.engines[0]+1)
	for n := range speeds {
		speeds[n] = a.f.replica.SlotSpeed(float64(n)) / full
	}
	cfg.Speed = func(active int, _ bool) float64 { return speeds[min(active, len(speeds)-1)] }
	return cfg, nil
}

// matchingLength is the length of its simulations: a group takes a dozen train steps.
func (o Options) matchingLength() length {
	if o.Quick {
		return length{20, 30, 2}
	}
	return length{40, 120, 3}
}

// simulateMatching simulates arrangements, by arrangement and seed.
func (o Options) simulateMatching(ctx context.Context, m matching, name string, all []arrangement) ([][]metrics.Summary, error) {
	l := o.matchingLength()
	flat, err := o.runAll(ctx, name, len(all)*l.seeds, func(i int) (metrics.Summary, error) {
		cfg, err := m.simulation(all[i/l.seeds], uint64(i%l.seeds)+1, l)
		if err != nil {
			return metrics.Summary{}, err
		}
		result, err := sim.Run(cfg)
		return result.Summary, err
	})
	if err != nil {
		return nil, err
	}
	summaries := make([][]metrics.Summary, len(all))
	for i := range summaries {
		summaries[i] = flat[i*l.seeds : (i+1)*l.seeds]
	}
	return summaries, nil
}

// The figures of the case.
func trainerRate(s metrics.Summary) float64   { return s.Throughput.ConsumptionRolloutsPerS }
func deliveredRate(s metrics.Summary) float64 { return s.Throughput.ConsumptionRolloutsPerWallS }
func trainerWait(s metrics.Summary) float64   { return s.TrainerIdleRatio }

// discardedShare is the share of groups that ended untrained, of all that ended.
func discardedShare(s metrics.Summary) float64 {
	e := s.Waste.GroupsEnded
	all := e.Trained + e.Evicted + e.Discarded + e.Filtered + e.Pruned + e.Cancelled + e.Failed
	return 1 - float64(e.Trained)/float64(max(all, 1))
}

// staleShare is the part of it that exceeded the budget.
func staleShare(s metrics.Summary) float64 {
	e := s.Waste.GroupsEnded
	all := e.Trained + e.Evicted + e.Discarded + e.Filtered + e.Pruned + e.Cancelled + e.Failed
	return float64(e.Discarded) / float64(max(all, 1))
}

// throughputMatching is a run whose trainer waits although it is given a quarter of the GPUs.
func throughputMatching(ctx context.Context, o Options) (Case, error) {
	table, m, err := readMatching()
	if err != nil {
		return Case{}, err
	}
	plain, recomputed, err := m.trainedTokens()
	if err != nil {
		return Case{}, err
	}
	f, err := m.fleet(recomputed, matchingTailness)
	if err != nil {
		return Case{}, err
	}
	dispatched := m.generator / (1 - m.discarded)
	c := Case{Title: "A trainer that waits: throughput matching", Source: table.source, Setup: matchingSetup(m, f, dispatched, recomputed)}
	rates := arrangement{name: "component rates", f: f, accepted: 1 - m.discarded, tokensPerS: dispatched * f.lengths.Mean() / float64(f.slots)}
	summaries, err := o.simulateMatching(ctx, m, "throughput_matching", []arrangement{rates})
	if err != nil {
		return c, err
	}
	c.Quantities = matchingQuantities(table, m, rates.name, summaries[0])
	c.Checks = []Check{{Row: "64 + 192 GPUs", Name: "trainer_wait_share", How: "where the trainer waits for nothing else: 1 − generator rate/trainer rate", Printed: m.wait,
		Redone: 1 - m.generator/m.trainer, Rounding: table.rounding(0, "trainer_wait_share") + m.generator/m.trainer*0.005*(1/m.generator+1/m.trainer)}}
	grid, found, err := o.explanations(ctx, m, f)
	if err != nil {
		return c, err
	}
	c.Grids = append(c.Grids, grid)
	c.Findings = append(matchingFindings(m, f, plain, recomputed, dispatched, summaries[0]), m.explanationFindings(found)...)
	return c, nil
}

// matchingSetup says what goes in and what comes out.
func matchingSetup(m matching, f fleet, dispatched, tokens float64) []string {
	return []string{
		fmt.Sprintf("Two figures that decide both rates are not published: the tokens of a sample and the time it spends in tools. Two rates therefore have to go in, in one form or another: here as they are printed, the busy trainer's %.2f samples/s (a step of %.0f s) and the %.2f samples/s delivered to it, "+
			"of which with the discarded share of %.2f follow %.2f dispatched samples/s.", m.trainer, float64(m.batch)/m.trainer, m.generator, m.discarded, dispatched),
		fmt.Sprintf("Inputs as printed beside these: batch %d, group %d, staleness budget %d (prime-rl's rules: what exceeds the budget is discarded, in flight as soon as it cannot make it, and nothing is dispatched while a batch waits), %d tokens at most. Outputs: how long the trainer waits, whether the loop sustains both rates under that budget, staleness, and what is discarded beyond the filter.", m.batch, m.group, m.budget, m.contextCap),
		fmt.Sprintf("Assumed: %d replicas of %d GPUs in bf16 with the %d slots that their cache holds at %.0f tokens a sample (which the printed MFU implies, see below), lengths of tailness %d, and that the discarded samples are a filter's.",
			len(f.engines), matchingReplica, f.slots, tokens, matchingTailness),
	}
}

// matchingQuantities are the printed figures beside ours.
func matchingQuantities(table published, m matching, row string, runs []metrics.Summary) []Quantity {
	return []Quantity{
		{Row: row, Name: "trainer_wait_share", Measured: table.number(0, "trainer_wait_share"), Closed: theory.Known(1 - m.generator/m.trainer), Simulated: over(runs, trainerWait), Decimals: 3,
			Basis: FollowsFromInputs, Note: "1 − the ratio of the two rates that go in, but for what the loop adds"},
		{Row: row, Name: "trainer_samples_per_s", Measured: table.number(0, "trainer_samples_per_s"), Closed: theory.Known(m.trainer), Simulated: over(runs, trainerRate),
			Basis: FollowsFromInputs, Note: "input, while a step runs"},
		{Row: row, Name: "generator_samples_per_s", Measured: table.number(0, "generator_samples_per_s"), Closed: theory.Known(m.generator), Simulated: over(runs, deliveredRate),
			Basis: FollowsFromInputs, Note: "input as dispatched rate and filter; what reaches a train step is the output"},
		{Row: row, Name: "dispatched_discarded_share", Measured: table.number(0, "dispatched_discarded_share"), Simulated: over(runs, discardedShare), Decimals: 3,
			Basis: FollowsFromInputs, Note: "input but for what exceeds the budget"},
		{Row: row, Name: "share over the budget", Simulated: over(runs, staleShare), Decimals: 3, Note: "output; not published"},
		{Row: row, Name: "staleness", Simulated: over(runs, staleness), Decimals: 1, Note: "output; not published"},
	}
}

// explanations simulates what the set-up alone says, from the hardware model: without
// and with tools, with light and heavy tails, with and without a filter. No printed rate
// but the trainer's goes in.
func (o Options) explanations(ctx context.Context, m matching, f fleet) (Grid, []explained, error) {
	g := Grid{Title: "From the hardware model, no generator rate given: what might discard 60 %", Header: []string{"arrangement", "dispatched/s", "delivered/s", "trainer waits", "discarded", "over the budget", "staleness"}}
	var all []arrangement
	for _, a := range []struct {
		accepted, tools, tail float64
	}{{1, 0, 0}, {0.4, 0, 0}, {1, 1, 50}, {0.4, 1, 50}, {0.4, 1.5, 50}, {0.4, 2, 50}, {1, 1, 90}, {1, 1.5, 90}, {1, 2, 90}, {1, 3, 90}} {
		name := "no tools"
		if a.tools > 0 {
			name = fmt.Sprintf("tools take %g× decoding, tailness %g", a.tools, a.tail)
		}
		if a.accepted < 1 {
			name += fmt.Sprintf(", filter passes %g %%", 100*a.accepted)
		}
		all = append(all, arrangement{name: name, f: f, accepted: a.accepted, tools: a.tools, toolTail: a.tail})
	}
	summaries, err := o.simulateMatching(ctx, m, "throughput_matching: explanations", all)
	if err != nil {
		return g, nil, err
	}
	g.Rows = append(g.Rows, []string{"printed", report.Figure(m.generator/(1-m.discarded), 2), report.Figure(m.generator, 2), report.Share(m.wait), report.Share(m.discarded), "–", "–"})
	var found []explained
	for i, a := range all {
		runs := summaries[i]
		mean := func(of func(metrics.Summary) float64) float64 { return over(runs, of).Mean }
		e := explained{arrangement: a, delivered: mean(deliveredRate), wait: mean(trainerWait), discarded: mean(discardedShare)}
		e.dispatched = e.delivered / (1 - e.discarded)
		found = append(found, e)
		g.Rows = append(g.Rows, []string{a.name, report.Figure(e.dispatched, 2), report.Figure(e.delivered, 2), report.Share(e.wait),
			report.Share(e.discarded), report.Share(mean(staleShare)), report.Figure(mean(staleness), 1)})
	}
	return g, found, nil
}

// explained is what an arrangement came to.
type explained struct {
	arrangement
	dispatched, delivered, wait, discarded float64
}

// nearest is the arrangement, with or without a filter, whose farthest figure is the
// nearest to the printed ones, and how far that is.
func (m matching) nearest(all []explained, filtered bool) (best explained, off float64) {
	off = math.Inf(1)
	for _, e := range all {
		if (e.accepted < 1) != filtered {
			continue
		}
		farthest := 0.0
		for _, pair := range [][2]float64{{e.dispatched, m.generator / (1 - m.discarded)}, {e.delivered, m.generator}, {e.wait, m.wait}, {e.discarded, m.discarded}} {
			farthest = max(farthest, math.Abs(pair[0]/pair[1]-1))
		}
		if farthest < off {
			best, off = e, farthest
		}
	}
	return best, off
}

// said is the arrangement with its figures.
func (e explained) said() string {
	return fmt.Sprintf("%s” (%.2f dispatched and %.2f delivered a second, the trainer waits %s, %s discarded)", e.name, e.dispatched, e.delivered, report.Share(e.wait), report.Share(e.discarded))
}

// matchingFindings say what follows and what does not.
func matchingFindings(m matching, f fleet, plain, recomputed, dispatched float64, runs []metrics.Summary) []string {
	capacity := float64(f.slots) * f.tokensPerS / f.lengths.Mean()
	return []string{
		fmt.Sprintf("The printed wait of %.2f is what the two printed rates give, 1 − %.2f/%.2f = %.3f; in the simulation the trainer waits %.3f, and the loop sustains both rates under the budget of %d.",
			m.wait, m.generator, m.trainer, 1-m.generator/m.trainer, over(runs, trainerWait).Mean, m.budget),
		fmt.Sprintf("An MFU of %.3f at %.2f samples/s on %d GPUs implies %.1f thousand tokens a sample, %.1f thousand where activations are recomputed: both are below the cap, so that the three printed figures fit together. Attention over the context is not counted; with it the same MFU means fewer tokens.",
			m.mfu, m.trainer, m.trainGPUs, plain/1000, recomputed/1000),
		fmt.Sprintf("With %.1f thousand tokens a sample the rollout GPUs' roofline gives %.1f samples/s without any tool time; %.2f dispatched samples/s leave %.0f %% of the slots' time for tools, sandboxes and prefill. The generator's rate is not computable from the set-up alone, for want of the tool time.",
			recomputed/1000, capacity, dispatched, 100*(1-dispatched/capacity)),
	}
}

// explanationFindings say what the arrangements show.
func (m matching) explanationFindings(all []explained) []string {
	f := all[0].f
	capacity := float64(f.slots) * f.tokensPerS / f.lengths.Mean()
	filter, filterOff := m.nearest(all, true)
	tools, toolsOff := m.nearest(all, false)
	return []string{
		fmt.Sprintf("What can discard 60 %% while the trainer waits, no generator rate being put in: a filter of groups that teach nothing, as in “%s; or tool times with a heavy tail alone, where the slowest of 16 siblings misses the budget and takes its group with it, as in “%s. "+
			"Every printed figure is within %s and %s of these. Both are picked from the scan, so that they show what suffices and not what was; the share discarded over the budget, which a framework can count, tells them apart, and mean staleness does not.",
			filter.said(), tools.said(), report.Share(filterOff), report.Share(toolsOff)),
		fmt.Sprintf("The dispatch rule has its own part in the wait: as in “%s, where the GPUs could feed the trainer %.1f times over. Dispatch stops while a batch waits and starts again in all slots at once, so that rollouts come in waves.", all[0].said(), capacity/m.trainer),
	}
}
