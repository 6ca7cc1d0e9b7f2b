package sim

import (
	"math/rand/v2"
	"testing"

	"github.com/headway-rl/headway/loop"
)

// firstOf finds the first rollout to end by looking at all of them.
func firstOf(slots []rollout) (first int32) {
	first = none
	for i := range slots {
		s := &slots[i]
		if s.group == 0 {
			continue
		}
		if first == none || s.end < slots[first].end || s.end == slots[first].end && s.before(&slots[first]) {
			first = int32(i)
		}
	}
	return first
}

// The calendar gives rollouts in the order of (end, group, sample), whatever times
// are like: spread out, equal, aligned, years apart, of changing scale; whether slots
// are always taken or not, and with some taken out before their end.
func TestCalendarIsInOrder(t *testing.T) {
	durations := map[string]func(r *rand.Rand, i int) int64{
		"spread":   func(r *rand.Rand, _ int) int64 { return int64(r.ExpFloat64() * 1e10) },
		"equal":    func(*rand.Rand, int) int64 { return 1e9 },
		"aligned":  func(r *rand.Rand, _ int) int64 { return 20e6 * (1 + r.Int64N(50)) },
		"zero":     func(r *rand.Rand, _ int) int64 { return r.Int64N(2) },
		"far":      func(r *rand.Rand, _ int) int64 { return 1 + r.Int64N(1000) + r.Int64N(60)/59*1e15 },
		"slower":   func(r *rand.Rand, i int) int64 { return int64(r.ExpFloat64() * 1e6 * float64(1+i*i)) },
		"faster":   func(r *rand.Rand, i int) int64 { return int64(r.ExpFloat64() * 1e12 / float64(1+i)) },
		"enormous": func(r *rand.Rand, _ int) int64 { return r.Int64N(1 << 50) },
	}
	for name, duration := range durations {
		for _, n := range []int{1, 2, 33, 200} {
			r := rand.New(rand.NewPCG(uint64(n), 7))
			slots := make([]rollout, n)
			c := newCalendar(slots)
			now, group := int64(0), loop.GroupID(0)
			start := func(i, round int) {
				if r.IntN(2) == 0 {
					group++
				}
				s := &slots[i]
				s.group, s.sample, s.end = group+1, r.Int32N(4), now+duration(r, round)
				for k := range slots { // names are unique
					if k != i && slots[k].group == s.group && slots[k].sample == s.sample {
						group += 2
						s.group = group + 1
					}
				}
				c.add(int32(i), s)
			}
			for i := range slots {
				start(i, 0)
			}
			for round := range 5 * reviewEnds / 2 {
				want := firstOf(slots)
				if c.next == len(c.due) && !c.turn() {
					if want != none {
						t.Fatalf("%s, %d slots, round %d: nothing is due, want slot %d", name, n, round, want)
					}
				} else {
					got := c.due[c.next]
					if got.slot != want || got.end != slots[want].end {
						t.Fatalf("%s, %d slots, round %d: slot %d ends at %d, want %d at %d", name, n, round, got.slot, got.end, want, slots[want].end)
					}
					c.next++
					now = got.end
					slots[want].group = 0
				}
				for i := range slots { // most go on at once, some later, some are stopped
					switch {
					case slots[i].group == 0 && r.IntN(4) > 0:
						start(i, round)
					case slots[i].group != 0 && r.IntN(8*n) == 0:
						c.remove(int32(i))
						slots[i].group = 0
					}
				}
			}
		}
	}
}
