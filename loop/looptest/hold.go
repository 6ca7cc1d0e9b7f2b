package looptest

import "github.com/headway-rl/headway/loop"

// never is the time of what has not happened, or is not known to.
const never int64 = -1

// holdModel is what the expectation of the next switch of weights is made of, in nanoseconds.
type holdModel struct {
	// step, period and sync are the estimates of a train step's time, of the time between two ends of
	// train steps, and of a sync's time; 0 is unknown.
	step, period, sync int64
	// leased, ended and synced are when the running train step began, the last one ended and the running
	// sync began.
	leased, ended, synced int64
	// since is when the hold began; spent: it has been held as long as may be.
	since int64
	spent bool
	// cost is of an adaptive hold.
	cost costModel
}

func newHold() holdModel { return holdModel{leased: never, ended: never, synced: never, since: never} }

// towards moves an estimate an eighth of the way to a new value.
func towards(estimate *int64, value int64) {
	if *estimate == 0 {
		*estimate = value
		return
	}
	*estimate += (value - *estimate) / 8
}

// stepEnded, syncEnded, switched and forget book what the estimates are made of.
func (h *holdModel) stepEnded(now int64) (period int64) {
	if h.leased != never {
		towards(&h.step, now-h.leased)
	}
	if h.ended != never {
		period = now - h.ended
		towards(&h.period, period)
	}
	h.ended = now
	return period
}

func (h *holdModel) syncEnded(now int64) {
	if h.synced != never { // else a restart came in between
		towards(&h.sync, now-h.synced)
	}
}

// switched gives up holding: the engines have the newest weights.
func (h *holdModel) switched() { h.since, h.spent = never, false }

// forget gives up what a restart of the run has cut short.
func (h *holdModel) forget() {
	h.leased, h.ended, h.synced = never, never, never
	h.since, h.spent = never, false
}

func (c *Checker) holdLimit() int64 { return int64(c.cfg.Hold * float64(c.hold.period)) }

// expectedSwitch is the instant at which the next weights are expected to be
// served; never if there is nothing to expect.
func (c *Checker) expectedSwitch() int64 {
	h := &c.hold
	switch { // what began before a restart began nobody knows when
	case c.target != loop.NoVersion && h.synced == never:
		return never
	case c.target != loop.NoVersion:
		return h.synced + h.sync
	case c.lease.id == 0 || h.leased == never:
		return never
	}
	further := max(int64(c.cfg.SyncEvery)-int64(c.version-c.completed), 1) - 1
	if c.cfg.TrainerAsks {
		for further = 0; (int64(c.version)+1+further)%int64(c.cfg.SyncEvery) != 0; further++ {
		}
	}
	if h.step == 0 || further > 0 && h.period == 0 {
		return never
	}
	return h.leased + h.step + further*h.period + h.sync
}

// holding reports whether a group that could be opened is to wait for the next
// weights, and books it.
func (c *Checker) holding() bool {
	h, limit := &c.hold, c.holdLimit()
	if limit <= 0 || h.spent {
		return false
	}
	expected := c.expectedSwitch()
	if expected == never {
		h.since = never
		return false
	}
	if h.since == never && expected-c.now <= limit {
		h.since = c.now
	}
	return h.since != never && c.now-h.since < 2*limit
}

// holdTick is the instant at which a hold ends at the latest, or never. A hold
// whose time is over ends with the step, whether or not a group could have been
// opened: the driver would be asked for an instant that has passed.
func (c *Checker) holdTick() int64 {
	h := &c.hold
	if h.since == never {
		return never
	}
	end := h.since + 2*c.holdLimit()
	if c.now >= end {
		h.since, h.spent = never, true
		return never
	}
	return end
}
