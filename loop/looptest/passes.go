package looptest

import "github.com/headway-rl/headway/loop"

// passModel counts the groups that became ready in a train step, and those of them that the filters let pass.
type passModel struct {
	ready, passed int
}

// passShare is the share of groups that pass the filters now, by the train steps booked: the value at the end of a line
// through four windows, whose slope counts only as far as chance alone would not have made it.
func (b *controlModel) passShare(window int) float64 {
	ready, passed := 0, 0
	kept := b.steps[max(len(b.steps)-4*window, 0):]
	for _, s := range kept {
		ready, passed = ready+s.ready, passed+s.passed
	}
	if passed == 0 {
		return 1
	}
	mean := float64(passed) / float64(ready)
	var shares []float64 // the oldest first
	for end := len(b.steps); end >= window && len(shares) < 4; end -= window {
		of := passModel{}
		for _, s := range b.steps[end-window : end] {
			of.ready, of.passed = of.ready+s.ready, of.passed+s.passed
		}
		if of.passed == 0 {
			return mean
		}
		shares = append([]float64{float64(of.passed) / float64(of.ready)}, shares...)
	}
	k := float64(len(shares))
	if k < 2 {
		return mean
	}
	var sum, sumX, sumXX, sumXY float64
	for i, share := range shares {
		x := float64(i)
		sum, sumX, sumXX, sumXY = sum+share, sumX+x, sumXX+x*x, sumXY+x*share
	}
	spread := sumXX - sumX*sumX/k
	slope := (sumXY - sumX*sum/k) / spread
	chance := 3 * (1 - mean) * k / float64(passed) * (sum / k) * (sum / k) / spread
	if slope == 0 || slope*slope <= chance {
		return mean
	}
	slope *= 1 - chance/(slope*slope)
	end := (k - 1) / 2
	if slope > 0 {
		end += 0.5
	}
	return min(max(mean+slope*end, mean/2), 1)
}

// expected is the number of live groups that are expected to be trained.
func (c *Checker) expected() float64 {
	running := 0
	for _, g := range c.groups {
		if g.place == generating {
			running++
		}
	}
	return float64(len(c.groups)-running) + c.control.passes*float64(running)
}

// stepMeasured books what became ready in the train step that has ended.
func (c *Checker) stepMeasured() {
	b := &c.control
	b.steps, b.now = append(b.steps, b.now), passModel{}
	if c.cfg.Control != nil && b.ranges[loop.SettingLive].Moves() {
		b.passes = b.passShare(c.cfg.Control.Window)
	}
}
