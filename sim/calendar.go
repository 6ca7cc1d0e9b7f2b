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
	// shift is the length of a day, in bits of nanoseconds; today the day that is in due.
	shift uint
	today int64
	// heads are the first slots of the buckets, none where there is nothing; busy has one
	// bit a bucket. The number of buckets is a power of two, of which mask is one less.
	heads []int32
	busy  []uint64
	mask  int64
	// due are the ends of today, and of days before that were added late, in order; those
	// before next have been taken.
	due  []due
	next int
	// later counts what hangs in buckets.
	later int

	// taken counts ends since the length of a day was last thought over, at the time
	// since; distant those among them that were met a year or more too early.
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

// Buckets of a calendar: the fewest, and the most for every slot. dayRollouts bounds
// how many ends are waited for before the length of a day is thought over.
const (
	bucketsMin     = 64
	bucketsPerSlot = 16
	reviewEnds     = 4096
)

// newCalendar returns an empty calendar over slots. The first look at it, by when
// the first rollouts are in it, measures the days.
func newCalendar(slots []rollout) calendar {
	c := calendar{slots: slots, due: make([]due, 0, len(slots)+1), taken: reviewEnds}
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
	c.due, c.next, c.later = c.due[:0], 0, 0
}

// add puts the rollout in a slot into the calendar.
func (c *calendar) add(slot int32, end int64) {
	day := end >> c.shift
	if day <= c.today {
		c.addDue(due{end, slot})
		return
	}
	b := day & c.mask
	c.slots[slot].next = c.heads[b]
	c.heads[b] = slot
	c.busy[b>>6] |= 1 << (b & 63)
	c.later++
}

// addDue puts a rollout into what is due. Hardly any is as short as that.
func (c *calendar) addDue(d due) {
	if len(c.due) == cap(c.due) && c.next > 0 {
		c.due = c.due[:copy(c.due, c.due[c.next:])]
		c.next = 0
	}
	c.due = append(c.due, d)
	for i := len(c.due) - 1; i > c.next && c.before(d, c.due[i-1]); i-- {
		c.due[i-1], c.due[i] = d, c.due[i-1]
	}
}

// before orders two ends.
func (c *calendar) before(a, b due) bool {
	return a.end < b.end || a.end == b.end && c.slots[a.slot].before(&c.slots[b.slot])
}

// first returns the rollout that ends first and leaves it where it is; the slot is
// none if nothing runs.
func (c *calendar) first() due {
	if c.next < len(c.due) || c.turn() {
		return c.due[c.next]
	}
	return due{slot: none}
}

// turn goes on to the next day on which something ends. It reports false if there
// is none.
func (c *calendar) turn() bool {
	c.taken += len(c.due)
	c.due, c.next = c.due[:0], 0
	if c.taken >= reviewEnds {
		c.review()
	}
	for turned := int64(0); c.later > 0; {
		days := c.nextBusy()
		if turned += days; turned > c.mask+1 {
			c.today = c.earliest() - 1 // nothing in a whole year
			turned = 0
			continue
		}
		c.today += days
		if c.open(c.today & c.mask) {
			return true
		}
	}
	return len(c.due) > 0
}

// nextBusy returns how many days later than today the next busy bucket is, at most a year.
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
func (c *calendar) open(b int64) bool {
	at := c.heads[b]
	kept := none
	for at != none {
		s := &c.slots[at]
		following := s.next
		if s.end>>c.shift == c.today {
			c.due = append(c.due, due{s.end, at})
			c.later--
		} else {
			s.next, kept = kept, at
			c.distant++
		}
		at = following
	}
	if c.heads[b] = kept; kept == none {
		c.busy[b>>6] &^= 1 << (b & 63)
	}
	if len(c.due) > 1 {
		c.sort()
	}
	return len(c.due) > 0
}

// sort sorts what is due. Lists are last in, first out, and most rollouts that end at
// one instant began in the order of their groups, so that the reverse is nearly in order.
func (c *calendar) sort() {
	slices.Reverse(c.due)
	if len(c.due) > 32 {
		slices.SortFunc(c.due, func(a, b due) int {
			if c.before(a, b) {
				return -1
			}
			return 1
		})
		return
	}
	for i := 1; i < len(c.due); i++ {
		d := c.due[i]
		k := i
		for ; k > 0 && c.before(d, c.due[k-1]); k-- {
			c.due[k] = c.due[k-1]
		}
		c.due[k] = d
	}
}

// remove takes a rollout out before its end.
func (c *calendar) remove(slot int32) {
	s := &c.slots[slot]
	day := s.end >> c.shift
	if day <= c.today {
		for i := c.next; i < len(c.due); i++ {
			if c.due[i].slot == slot {
				c.due = append(c.due[:i], c.due[i+1:]...)
				return
			}
		}
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

// review thinks the length of a day over, between two days: it is to be the mean
// time between two ends since the last time or, the first time, what that would be if
// slots were always taken. Nothing but speed depends on it.
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
	gap := float64(first-c.since) / float64(c.taken)
	if c.today < 0 {
		gap = (sum/float64(n) - float64(c.since)) / float64(n)
	}
	shift := uint(bits.Len64(uint64(max(gap, 1)))) - 1
	buckets := bucketsMin
	for int64(buckets) <= (last-first)>>shift && buckets < bucketsPerSlot*len(c.slots) {
		buckets *= 2
	}
	off := int(shift) - int(c.shift)
	if c.today < 0 || off > 1 || off < -1 || int64(buckets) > c.mask+1 && c.distant > c.taken/8 {
		c.reset(shift, buckets, first>>shift-1)
		for i := range c.slots {
			if s := &c.slots[i]; s.group != 0 {
				c.add(int32(i), s.end)
			}
		}
	}
	c.taken, c.distant, c.since = 0, 0, first
}
