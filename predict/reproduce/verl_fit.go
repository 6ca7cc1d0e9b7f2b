package reproduce

import (
	"fmt"
	"math"

	"github.com/headway-rl/headway/loop/workload"
	"github.com/headway-rl/headway/predict/hardware"
	"github.com/headway-rl/headway/predict/schedule"
)

// verlAssumptions are what no published figure says, the same for every family.
type verlAssumptions struct {
	// mfu is the share of peak FLOP/s that an update reaches, all that stands beside its passes included.
	mfu float64
	// tailness of the lognormal lengths; 0 is the least with which the longest of a batch is at
	// the cap in half of the batches.
	tailness float64
	// promptTokens of a mean prompt.
	promptTokens float64
	// balanced has every data-parallel rank get the same share of each optimizer step.
	balanced bool
	// offloadStays has the fixed part of a pass stay where the trainer has GPUs of its own.
	offloadStays bool
	// restGone has the part of the step that is in no published timer vanish with the colocation.
	restGone bool
	// syncS is a weight sync between separate GPUs.
	syncS float64
}

// verlCentral is what is assumed unless it is varied.
var verlCentral = verlAssumptions{mfu: 0.35, promptTokens: 150, syncS: 0.12}

// Passes over the batch's tokens, in forward passes: an update with activation
// checkpointing is forward, forward again and a backward of two.
const (
	updatePasses  = 4
	logProbPasses = 1
)

// fitted is what one colocated row says of its family under the assumptions.
type fitted struct {
	row     verlRow
	assumed verlAssumptions
	lengths *workload.Lengths
	// tailness and the share of rollouts at the cap.
	tailness, capped float64
	// passS is one forward pass of the batch over all of the row's GPUs, evenly shared; fixedS what
	// every pass takes beside; restS the step's time that no timer has.
	passS, fixedS, restS float64
	// decode is an engine's speed, its overhead such that the barrier is the published gen.
	decode  schedule.Decode
	prefill float64
	// overheadS is that overhead.
	overheadS float64
	// uneven holds slowdown of the numbers of GPUs that rows have.
	uneven map[int]float64
}

// fit solves for what the colocated row does not print: the mean length from
// the update by the model's arithmetic, the fixed part of a pass from update and
// log-probs together, the engines' overhead from gen.
func fit(row verlRow, assumed verlAssumptions) (fitted, error) {
	c := fitted{row: row, assumed: assumed}
	logProb, ok := row.logProbS.Value()
	if !ok {
		return c, fmt.Errorf("%s: no old_log_prob to tell the update's fixed part from its passes", row.name())
	}
	model, err := hardware.ModelNamed(row.family.model)
	if err != nil {
		return c, err
	}
	gpu, err := hardware.GPUNamed("h20")
	if err != nil {
		return c, err
	}
	c.restS = row.stepS - row.genS - logProb - row.refS.Or(0) - row.updateS
	tokens := row.updateS * float64(row.train) * gpu.BF16 * assumed.mfu / (2 * updatePasses * model.Active())
	mean := tokens/float64(row.family.groups*verlGroup) - assumed.promptTokens
	if !(mean >= 1) {
		return c, fmt.Errorf("%s: an update of %.2f s leaves no token to a response at an MFU of %g", row.name(), row.updateS, assumed.mfu)
	}
	if limit := row.family.capTokens; mean > float64(limit)/2 {
		return c, fmt.Errorf("%s: an update of %.2f s at an MFU of %g means %.0f tokens a response, more than half of the cap of %d. Assume a lower MFU", row.name(), row.updateS, assumed.mfu, mean, limit)
	}
	if err := c.lengthsOf(mean); err != nil {
		return c, err
	}
	uneven := map[int]float64{}
	for gpus := row.train; gpus >= c.row.family.ranksGPUs; gpus /= 2 {
		uneven[gpus] = c.slowdown(gpus)
	}
	c.uneven = uneven
	c.passS = (row.updateS - logProb) / (updatePasses*c.slowdown(row.train) - logProbPasses)
	c.fixedS = max(logProb-logProbPasses*c.passS, 0)
	return c, c.decodeOf(model, gpu)
}

// lengthsOf sets the lengths of a capped mean.
func (c *fitted) lengthsOf(mean float64) error {
	limit := c.row.family.capTokens
	rollouts := float64(c.row.family.groups * verlGroup)
	nominal := mean // of the last tailness tried: the next is near
	build := func(tailness float64) (*workload.Lengths, error) {
		for range 40 {
			l, err := workload.LengthSpec{Kind: workload.KindLognormal, MeanTokens: nominal, Tailness: tailness, CapTokens: limit}.Build()
			if err != nil {
				return nil, err
			}
			if math.Abs(l.Mean()-mean) < 1e-4*mean {
				return l, nil
			}
			nominal *= mean / l.Mean()
		}
		return nil, fmt.Errorf("%s: no lognormal of tailness %g capped at %d has a mean of %.0f", c.row.name(), tailness, limit, mean)
	}
	c.tailness = c.assumed.tailness
	if c.tailness == 0 {
		// P(none of the batch at the cap) is ½ where a rollout is there with ln 2/B.
		low, high := 1.0, 100.0
		for range 16 {
			middle := (low + high) / 2
			l, err := build(middle)
			if err != nil {
				return err
			}
			if 1-l.CDF(float64(limit-1)) < math.Ln2/rollouts {
				low = middle
			} else {
				high = middle
			}
		}
		c.tailness = high
	}
	lengths, err := build(c.tailness)
	if err != nil {
		return err
	}
	c.lengths, c.capped = lengths, 1-lengths.CDF(float64(limit-1))
	return nil
}

// unevenDraws are the optimizer steps drawn for an imbalance.
const unevenDraws = 400

// slowdown is by what factor an optimizer step takes longer than its share because
// its data-parallel ranks get rollouts of uneven length: E[largest of D sums of n
// lengths] over n·E[L], prompts counted in both, n the rollouts a rank has of one
// optimizer step, from seeded draws. That verl balances whole batches over the ranks is
// published (trainer.balance_batch); that each rank's share is cut into optimizer
// steps as it comes, as if drawn at random, is assumed.
func (c *fitted) slowdown(gpus int) float64 {
	ranks := max(gpus/c.row.family.ranksGPUs, 1)
	n := max(c.row.family.mini*verlGroup/ranks, 1)
	if c.assumed.balanced || ranks == 1 {
		return 1
	}
	if known, ok := c.uneven[gpus]; ok {
		return known
	}
	src := workload.NewSource(1, workload.StreamEstimate)
	total := 0.0
	for draw := range uint64(unevenDraws) {
		largest := 0
		for rank := range ranks {
			sum := 0
			for k := range n {
				sum += c.lengths.Draw(src, draw, uint32(rank*n+k), 1)
			}
			largest = max(largest, sum)
		}
		total += float64(largest)
	}
	prompts := float64(n) * c.assumed.promptTokens
	return (total/unevenDraws + prompts) / (float64(n)*c.lengths.Mean() + prompts)
}

// decodeOf sets the engine's speed: the roofline, and the overhead of a step with
// which the colocated barrier takes what is published.
func (c *fitted) decodeOf(model hardware.Model, gpu hardware.GPU) error {
	mean := c.lengths.Mean()
	replica := hardware.Replica{Model: model, GPU: gpu, GPUs: c.row.family.engineGPUs, PromptTokens: c.assumed.promptTokens,
		MeanTokens: mean, MeanSquareTokens: c.lengths.MeanSquare(), StepOverheadS: -1}
	slots := c.slots(c.row.gpus)
	roofline := schedule.Sampled(func(active int) float64 { return replica.Decode(float64(active)).Seconds }, slots)
	c.prefill = 1000 / replica.PrefillSeconds(1000)
	barrier := func(overhead float64) float64 {
		c.decode = schedule.Decode{Curve: make([]schedule.Point, len(roofline.Curve))}
		for i, p := range roofline.Curve {
			c.decode.Curve[i] = schedule.Point{Active: p.Active, StepS: p.StepS + overhead}
		}
		return c.input(c.row).BarrierS(c.row.gpus)
	}
	if barrier(0) > c.row.genS {
		return fmt.Errorf("%s: the roofline alone takes %.0f s for the batch, the run %.2f: these lengths are too long", c.row.name(), barrier(0), c.row.genS)
	}
	low, high := 0.0, 0.1
	for range 60 {
		if c.overheadS = (low + high) / 2; barrier(c.overheadS) < c.row.genS {
			low = c.overheadS
		} else {
			high = c.overheadS
		}
	}
	return nil
}

// slots of one engine: verl's rollouter keeps 16 prompts on each; a colocated engine
// has its share of the whole batch at once.
func (c *fitted) slots(gpus int) int {
	engines := gpus / c.row.family.engineGPUs
	return max((c.row.family.groups*verlGroup+engines-1)/engines, verlPromptsPerEngine*verlGroup)
}

// input is a row of the family as an input to the schedules.
func (c *fitted) input(r verlRow) schedule.Input {
	f := r.family
	in := schedule.Input{
		Lengths: c.lengths, GroupSize: verlGroup, BatchGroups: f.groups, GPUs: r.gpus, RolloutGPUs: r.rollout, GPUsPerEngine: f.engineGPUs,
		SlotsPerEngine: verlPromptsPerEngine * verlGroup, Decode: c.decode, PrefillTokensPerS: c.prefill, SyncS: c.assumed.syncS,
	}
	if r.mode == "colocate_sync" {
		in.RolloutGPUs, in.SlotsPerEngine = 0, c.slots(r.gpus)
		update, logProb := c.update(r.train, true), c.logProbs(r.train)
		in.Train = schedule.Phase{S: update, GPUs: r.train, FixedS: c.fixedS}
		in.LogProbs = schedule.Phase{S: logProb, GPUs: r.train, FixedS: min(c.fixedS, logProb)}
		in.SwitchS = c.restS + c.reference(r)
		return in.WithDefaults()
	}
	in.WholeGroups = true
	in.Pieces, in.Threshold = r.trigger, max(r.threshold, 1e-9)
	fixed := c.apartS()
	beside := c.reference(r)
	if !c.assumed.restGone {
		beside += c.restS
	}
	in.Train = schedule.Phase{S: c.update(r.train, false) + beside, GPUs: r.train, FixedS: fixed + beside}
	return in.WithDefaults()
}

// apartS is the fixed part of an update where the trainer has GPUs of its own.
func (c *fitted) apartS() float64 {
	if c.row.family.offloadApart || c.assumed.offloadStays {
		return c.fixedS
	}
	return 0
}

// update is the time of one batch's update on so many GPUs.
func (c *fitted) update(gpus int, shared bool) float64 {
	s := updatePasses * c.passS * float64(c.row.train) / float64(gpus) * c.slowdown(gpus)
	if shared {
		return s + c.fixedS
	}
	return s + c.apartS()
}

// logProbs is the time of one pass over the batch, which is balanced.
func (c *fitted) logProbs(gpus int) float64 {
	return c.fixedS + logProbPasses*c.passS*float64(c.row.train)/float64(gpus)
}

// reference is the time of the reference's log-probs on a row's train GPUs: what the
// colocated row prints, its pass scaled.
func (c *fitted) reference(r verlRow) float64 {
	s, ok := c.row.refS.Value()
	if !ok {
		return 0
	}
	pass := min(c.passS, s)
	return s - pass + pass*float64(c.row.train)/float64(r.train)
}
