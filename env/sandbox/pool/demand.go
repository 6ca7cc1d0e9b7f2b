package pool

import (
	"math"
	"time"
)

const (
	// quick and slow are the times over which what was asked for is averaged: the one sees a burst, the
	// other does not forget between two.
	quick, slow = 5 * time.Second, 30 * time.Second
	// standing is the longest that a box more than are wanted stands ready, and the longest time between
	// two leases for which one is wanted at all.
	standing = time.Minute
)

// demand measures how often boxes are asked for and how long a start takes.
type demand struct {
	began  time.Time
	at     time.Time // of the last that was asked for
	counts [2]float64
	startS float64 // mean of the last ten starts or so, 0 before the first
}

// asked notes that a box is asked for.
func (d *demand) asked(now time.Time) {
	d.counts = [2]float64{d.faded(0, quick, now) + 1, d.faded(1, slow, now) + 1}
	d.at = now
}

// faded is a count of what was asked for in which each weighs 1/e after every such time.
func (d *demand) faded(which int, over time.Duration, now time.Time) float64 {
	return d.counts[which] * math.Exp(-now.Sub(d.at).Seconds()/over.Seconds())
}

// started notes how long a start took.
func (d *demand) started(took time.Duration) {
	if d.startS == 0 {
		d.startS = took.Seconds()
		return
	}
	d.startS += (took.Seconds() - d.startS) / 10
}

// rate is what is asked for a second, the larger of the two averages.
func (d *demand) rate(now time.Time) float64 {
	return max(d.average(0, quick, now), d.average(1, slow, now))
}

// average divides a faded count by the weight of the time that there was: a young pool has seen less
// than the fading weighs. That time is taken as a second at least.
func (d *demand) average(which int, over time.Duration, now time.Time) float64 {
	seen := max(now.Sub(d.began).Seconds(), 1)
	return d.faded(which, over, now) / (over.Seconds() * -math.Expm1(-seen/over.Seconds()))
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
