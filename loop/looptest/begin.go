package looptest

import "github.com/headway-rl/headway/loop"

func (c *Checker) runStarted() {
	if c.started {
		c.counts.Late++
		return
	}
	c.started = true
	for i := range c.engines {
		if c.engines[i].pool == owned && !c.elsewhere(int32(i)) {
			c.engines[i].served = 0
		}
	}
}

// stands books that the attempt in a slot waits for another one, as its process is gone.
func (c *Checker) stands(s slotModel) {
	c.groups[s.group].samples[s.sample].state, c.groups[s.group].token = interrupted, true
	c.backlog = append(c.backlog, retryModel{s.group, s.sample})
}

func (c *Checker) recovered() {
	if !c.started {
		c.runStarted()
		return
	}
	c.stopping, c.finished = false, false
	for i := range c.slots {
		s := c.slots[i]
		if c.elsewhere(s.engine) {
			continue
		}
		c.slots[i] = slotModel{engine: s.engine}
		switch {
		case !s.taken || s.unwanted:
		case c.cfg.ResumeRestart:
			c.stands(s)
		default:
			c.failSample(c.groups[s.group], s.sample, loop.ReasonRestart)
		}
	}
	backlog := c.backlog
	c.backlog = nil
	for _, r := range backlog {
		if last := c.groups[r.group].samples[r.sample].slot; c.cfg.ResumeRestart || c.elsewhere(c.slots[last].engine) {
			c.backlog = append(c.backlog, r)
			continue
		}
		c.failSample(c.groups[r.group], r.sample, loop.ReasonRestart)
	}
	c.asked = false
	c.control.quietAt, c.control.now = c.now, passModel{}
	c.hold.forget()
	if len(c.cfg.EngineCells) == 0 {
		if c.weights() > c.completed { // what engines come back with is new to them
			c.taken = 0
		}
		c.target, c.completed = loop.NoVersion, c.weights()
	}
	if c.cfg.TrainSteps > 0 && c.version >= c.cfg.TrainSteps {
		c.finish(loop.ReasonSteps)
		return
	}
	var own []int32
	for i := range c.engines {
		switch e := &c.engines[i]; {
		case e.pool != owned:
			c.recoverPooled(int32(i))
		case !c.elsewhere(int32(i)):
			e.state, e.stage, e.served = gone, idle, loop.NoVersion
			own = append(own, int32(i))
		}
	}
	leased := c.lease.id != 0
	c.settleSync()
	v := c.newest()
	for _, i := range own {
		c.join(i, v)
	}
	if leased {
		c.lease.attempt++
		c.wantTrainStep()
		return
	}
	c.selectBatch()
}
