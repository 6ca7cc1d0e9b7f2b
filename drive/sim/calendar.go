package sim

import (
	"math/bits"
	"slices"
)

// calendar finds the first rollout to end among those of a merged run, in the exact
// order of (end, group, sample).
//
// It is a calendar queue (Brown 1988): time is cut into days of 2^shift ns, a day's
// rollouts hang in the list of its bucket, and as many buckets as there are make a
// year. The day that has come is taken out of its bucket and sorted; all later days
// stay unsorted, so that a start costs a store and an end hardly a comparison. Days
// are about as long as the mean time between two ends, which is measured.
type calendar struct {
	slots []rollout
	// due are the ends of today, and of days before that were added late, in order, from
	// next to the end of it; there is room for all slots.
	due  []due
	next int
	// later counts what hangs in buckets.
	later int
	// shift is the length of a day, in bits of nanoseconds; today the day that is due.
	shift uint
	today int64
	// heads are the first slots of the buckets, none where there is nothing; busy has one
	// bit a bucket. The number of buckets is a power of two, of which mask is one less.
	heads []int32
	busy  []uint64
	mask  int64

	// taken counts ends since the length of a day was last thought over, at the time
	// since; distant how many were met a year or more too early.
	taken, distant int
	since          int64
}

// due is a rollout that ends today.
type due struct {
	end  int64
	slot int32
}

// none is no slot.
const none = int32(-1)

// Buckets of a calendar: the fewest, and the most, which leave the cache to the slots.
// After reviewEnds ends the length of a day is thought over.
const (
	bucketsMin = 64
	bucketsMax = 1 << 15
	reviewEnds = 4096
)

// newCalendar returns an empty calendar over slots. The first look at it, by when
// the first rollouts are in it, measures the days.
func newCalendar(slots []rollout) calendar {
	c := calendar{slots: slots, due: make([]due, len(slots)), taken: reviewEnds}
	c.reset(62, bucketsMin, -1)
	return c
}

// reset empties the calendar.
func (c *calendar) reset(shift uint, buckets int, today int64) {
	c.shift, c.today, c.mask = shift, today, int64(buckets)-1
	if cap(c.heads) < buckets {
		c.heads, c.busy = make([]int32, buckets), make([]uint64, buckets/64)
	}
	c.heads, c.busy = c.heads[:buckets], c.busy[:buckets/64]
	for i := range c.heads {
		c.heads[i] = none
	}
	clear(c.busy)
	c.next, c.later = len(c.due), 0
}

// add puts a rollout into the calendar: s, which is in the given slot.
func (c *calendar) add(slot int32, s *rollout) {
	day := s.end >> (c.shift & 63)
	if day <= c.today {
		c.addDue(due{s.end, slot})
		return
	}
	b := day & c.mask
	head := &c.heads[b]
	s.next = *head
	*head = slot
	c.busy[b>>6] |= 1 << (b & 63)
	c.later++
}

// addDue puts a rollout into what is due. Hardly any is as short as that. A slot holds
// one rollout, so that there is always room.
func (c *calendar) addDue(d due) {
	c.next--
	i := c.next
	for ; i+1 < len(c.due) && c.before(c.due[i+1], d); i++ {
		c.due[i] = c.due[i+1]
	}
	c.due[i] = d
}

// before orders two ends.
func (c *calendar) before(a, b due) bool {
	return a.end < b.end || a.end == b.end && c.slots[a.slot].before(&c.slots[b.slot])
}

// turn goes on, when nothing is due any more, to the next day on which something
// ends. It reports false if there is none.
func (c *calendar) turn() bool {
	if c.taken >= reviewEnds {
		c.review()
	}
	for turned := int64(0); c.later > 0; {
		days := c.nextBusy()
		c.today += days
		if c.open(c.today & c.mask) {
			return true
		}
		if turned += days; turned > c.mask { // nothing in a whole year
			c.today, turned = c.earliest()-1, 0
		}
	}
	return c.next < len(c.due)
}

// nextBusy returns how many days later than today the next busy bucket is, at most a
// year. There must be one.
func (c *calendar) nextBusy() int64 {
	from := (c.today + 1) & c.mask
	w := from >> 6
	if word := c.busy[w] >> (from & 63); word != 0 {
		return 1 + int64(bits.TrailingZeros64(word))
	}
	days := 65 - from&63 // to the first of the next word
	for {
		w = (w + 1) & (c.mask >> 6)
		if word := c.busy[w]; word != 0 {
			return days + int64(bits.TrailingZeros64(word))
		}
		days += 64
	}
}

// open takes what ends today out of its bucket and sorts it. It reports false if
// nothing does: what hangs there ends in later years.
//
// Lists are last in, first out, and rollouts that end at one instant most often
// began in the order of their groups: filled from its end, due is nearly in order.
func (c *calendar) open(b int64) bool {
	at, kept := c.heads[b], none
	next := len(c.due)
	for at != none {
		s := &c.slots[at]
		following := s.next
		if s.end>>(c.shift&63) == c.today {
			next--
			c.due[next] = due{s.end, at}
		} else {
			s.next, kept = kept, at
			c.distant++
		}
		at = following
	}
	if c.heads[b] = kept; kept == none {
		c.busy[b>>6] &^= 1 << (b & 63)
	}
	opened := len(c.due) - next
	c.next = next
	c.taken += opened
	c.later -= opened
	if opened > 1 {
		c.sort(c.due[next:])
	}
	return opened > 0
}

// sort puts ends in order.
func (c *calendar) sort(ends []due) {
	if len(ends) > 32 {
		slices.SortFunc(ends, func(a, b due) int {
			if c.before(a, b) {
				return -1
			}
			return 1
		})
		return
	}
	for i := 1; i < len(ends); i++ {
		d := ends[i]
		k := i
		for ; k > 0 && c.before(d, ends[k-1]); k-- {
			ends[k] = ends[k-1]
		}
		ends[k] = d
	}
}

// remove takes a rollout out before its end.
func (c *calendar) remove(slot int32) {
	s := &c.slots[slot]
	day := s.end >> (c.shift & 63)
	if day <= c.today {
		i := c.next
		for c.due[i].slot != slot {
			i++
		}
		copy(c.due[c.next+1:i+1], c.due[c.next:i])
		c.next++
		return
	}
	b := day & c.mask
	c.later--
	if c.heads[b] == slot {
		if c.heads[b] = s.next; s.next == none {
			c.busy[b>>6] &^= 1 << (b & 63)
		}
		return
	}
	at := c.heads[b]
	for c.slots[at].next != slot {
		at = c.slots[at].next
	}
	c.slots[at].next = s.next
}

// earliest returns the first day on which anything that hangs in a bucket ends.
func (c *calendar) earliest() int64 {
	day := int64(-1)
	for i := range c.slots {
		if s := &c.slots[i]; s.group != 0 {
			if d := s.end >> c.shift; d > c.today && (day < 0 || d < day) {
				day = d
			}
		}
	}
	return day
}

// review thinks the length of a day over, between two days: it is to be a fraction of
// the mean time between two ends since the last time or, the first time, of what that
// would be if slots were always taken; but a year is to reach as far as nearly all
// ends. Nothing but speed depends on it.
func (c *calendar) review() {
	first, last, sum, n := int64(-1), int64(0), 0.0, 0
	for i := range c.slots {
		if s := &c.slots[i]; s.group != 0 {
			if n++; first < 0 || s.end < first {
				first = s.end
			}
			last = max(last, s.end)
			sum += float64(s.end)
		}
	}
	if n == 0 {
		return
	}
	mean := sum/float64(n) - float64(first)
	gap := float64(first-c.since) / float64(c.taken)
	if c.today < 0 {
		gap = (sum/float64(n) - float64(c.since)) / float64(n)
	}
	shift := uint(max(bits.Len64(uint64(max(gap, 1)))-2, 0))
	year := int64(min(float64(last-first), 8*mean))
	for year>>shift >= bucketsMax {
		shift++
	}
	buckets := bucketsMin
	for int64(buckets) <= year>>shift {
		buckets *= 2
	}
	off := int(shift) - int(c.shift)
	if c.today < 0 || off > 1 || off < -1 || int64(buckets) > c.mask+1 && c.distant > c.taken/8 {
		c.reset(shift, buckets, first>>shift-1)
		for i := range c.slots {
			if s := &c.slots[i]; s.group != 0 {
				c.add(int32(i), s)
			}
		}
	}
	c.taken, c.distant, c.since = 0, 0, first
}
