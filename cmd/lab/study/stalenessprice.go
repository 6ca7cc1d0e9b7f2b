package study

import (
	"context"
	"fmt"

	"github.com/headway-rl/headway/loop"
)

// StalenessPrice is what a train step costs at a lag, on hardware that is simulated.
type StalenessPrice struct {
	Lag int `json:"lag"`
	// Period is the mean time between two versions over that of a train step alone. Lag 0 is the
	// synchronous schedule with engines and trainer on devices of their own.
	Period float64 `json:"period_train_steps"`
	// PeriodPass is the same where the trainer makes one more forward pass over every batch.
	PeriodPass float64 `json:"period_with_forward_pass_train_steps"`
	// Staleness is the mean that the simulation came to, in versions; the bound is the lag.
	Staleness float64 `json:"staleness"`
}

// StalenessHardware is a workload on which staleness is bought. The same slots decode at the same
// speed at every lag, as many as the lag has use for.
type StalenessHardware struct {
	// Name and Note for people.
	Name string `json:"name"`
	Note string `json:"note"`
	// Prices are by lag, in the order of the options.
	Prices []StalenessPrice `json:"prices"`
	// Colocated is the period, over a train step alone, of the synchronous schedule that takes turns
	// on all devices. There generation lasts as long as on its own devices, a train step less by the
	// trainer's gain.
	Colocated float64 `json:"colocated_period_train_steps"`
	// ColocatedFaster is the same where generation too gets faster by all that it gains in devices.
	ColocatedFaster float64 `json:"colocated_faster_decoding_period_train_steps"`
	// slow is a group's mean generation time over the train step.
	slow float64
}

// trainShare is the trainer's share of the devices where engines have the others: the even split that keeps
// both sides busy where a device trains as many tokens a second as it makes.
const trainShare = 0.5

// ForwardShare is the time of a forward pass over that of a train step, which has a forward and a
// backward one. It is 2 of its 6 operations a parameter and token.
const ForwardShare = 1.0 / 3

// Of the hardware: lengths as the other studies have them.
const (
	priceTailness = 50
	priceTail     = 2.210 // M of 8 lognormal lengths of that tailness
	priceSlots    = 17    // C/B: what lag 16 can use
	priceWarmup   = 60
	priceMeasured = 240
)

// stalenessHardware are the two that are priced.
func stalenessHardware() []StalenessHardware {
	return []StalenessHardware{
		{Name: "rollouts of 2 train steps", slow: 2, Note: "a group takes 2 train steps from its first token to its last, as single answers do"},
		{Name: "rollouts of 8 train steps", slow: 8, Note: "a group takes 8 train steps, as long reasoning and agents with tools do"},
	}
}

// bounded opens a group while the mean staleness stays within the lag; lag 0 is the synchronous
// schedule, whose trainer waits for the last of the batch's own rollouts.
func bounded(lag int) Rule {
	return Rule{fmt.Sprintf("bounded %d", lag), func(c *loop.Config, _ Cell) {
		c.Policy, c.Eta, c.QueueGroups = loop.PolicyBounded, float64(lag), (lag+1)*c.BatchGroups
		if lag == 0 {
			c.Policy = loop.PolicySynchronous
		}
	}}
}

// barrier is how long a synchronous step generates, in train steps alone.
func (h *StalenessHardware) barrier() float64 { return h.Colocated - trainShare }

// trial is the hardware at a lag with a train step of so many plain ones.
func (h *StalenessHardware) trial(lag int, step float64, measured int) Trial {
	slots := float64(max(priceSlots, lag+1))
	return Trial{Rule: bounded(lag), Seed: 1, Warmup: min(priceWarmup, measured), Measured: measured,
		Cell: Cell{Rho: priceTail * slots / h.slow * step, Tailness: priceTailness, Load: slots, GroupSize: stalenessGroup, Concurrency: int(slots) * stalenessBatch}}
}

// prices simulates what a step costs at each lag, and colocated, over that many train steps.
func prices(ctx context.Context, lags []int, measured int) ([]StalenessHardware, error) {
	all := stalenessHardware()
	type priced struct {
		lag  int
		step float64 // the train step over a plain one
	}
	var wanted []priced
	for _, lag := range lags {
		wanted = append(wanted, priced{lag, 1}, priced{lag, 1 + ForwardShare})
	}
	// Slots beyond those of a batch stand empty in a synchronous step: of more devices the trainer
	// alone has more speed.
	wanted = append(wanted, priced{0, trainShare})
	var trials []Trial
	for i := range all {
		for _, p := range wanted {
			trials = append(trials, all[i].trial(p.lag, p.step, measured))
		}
	}
	figures, err := Simulator{}.Run(ctx, trials)
	if err != nil {
		return nil, err
	}
	for i, f := range figures {
		if f.Failed != "" {
			return nil, fmt.Errorf("study: %s: %s", trials[i].key(), f.Failed)
		}
		h, p := &all[i/len(wanted)], wanted[i%len(wanted)]
		switch period := f.Period * p.step; p.step {
		case 1:
			h.Prices = append(h.Prices, StalenessPrice{Lag: p.lag, Period: period, Staleness: f.Staleness})
		case trainShare:
			h.Colocated = period
			h.ColocatedFaster = float64(h.barrier()*(1-trainShare)) + trainShare
		default:
			h.Prices[len(h.Prices)-1].PeriodPass = period
		}
	}
	return all, nil
}
