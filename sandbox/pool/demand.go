package pool

import (
	"math"
	"time"
)

const (
	// fades is the time after which what was asked for counts 1/e.
	fades = 30 * time.Second
	// standing is the longest that a box more than are wanted stands ready, and the longest time between
	// two leases for which one is wanted at all.
	standing = time.Minute
)

// demand measures how often boxes are asked for and how long a start takes.
type demand struct {
	began, at time.Time
	count     float64 // of what was asked for, faded to at
	startS    float64 // mean of the last ten starts or so, 0 before the first
}

// asked notes that a box is asked for.
func (d *demand) asked(now time.Time) {
	d.count, d.at = d.faded(now)+1, now
}

func (d *demand) faded(now time.Time) float64 {
	return d.count * math.Exp(-now.Sub(d.at).Seconds()/fades.Seconds())
}

// started notes how long a start took.
func (d *demand) started(took time.Duration) {
	if d.startS == 0 {
		d.startS = took.Seconds()
		return
	}
	d.startS += (took.Seconds() - d.startS) / 10
}

// rate is what is asked for a second. A young pool has seen less than the fading weighs: the sum is
// divided by the weight of the time that there was, taken as a second at least.
func (d *demand) rate(now time.Time) float64 {
	seen := max(now.Sub(d.began).Seconds(), 1)
	return d.faded(now) / (fades.Seconds() * -math.Expm1(-seen/fades.Seconds()))
}

// wanted is how many boxes should stand ready or be on their way: what is asked for while one starts
// (Little's law), and two standard deviations of that number, so that few leases find none.
func (d *demand) wanted(now time.Time, least, most int) int {
	rate := d.rate(now)
	if d.startS == 0 || rate*standing.Seconds() < 1 {
		return least
	}
	mean := rate * d.startS
	return int(min(max(math.Ceil(mean+2*math.Sqrt(mean)), float64(least)), float64(most)))
}
