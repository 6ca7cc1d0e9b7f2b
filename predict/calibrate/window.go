package calibrate

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
)

// window is what one engine did between two pages.
type window struct {
	where    string
	seconds  float64
	replicas float64
	atEnd    bool
	// by is how much each counter grew, from and to the gauges at its ends.
	by       map[quantity]float64
	from, to reading
}

// tokens are those that came after a response's first, slotS the time that responses spent on them: one second of one
// response is one. Both are counted as they come, where the server counts tokens at the end of a response.
func (w window) tokens() float64 {
	if n := w.by[generated] - w.by[firstToken.count()]; !w.atEnd && n > 0 {
		return n // a step with speculative decoding brings several
	}
	return w.by[betweenTokens.count()]
}

func (w window) slotS() float64 { return w.by[betweenTokens] }

// active is how many responses decoded at once on average, on each replica.
func (w window) active() float64 { return w.slotS() / w.seconds / w.replicas }

// steady reports whether as many responses ran at both ends as on average.
func (w window) steady() bool {
	near := func(r reading) bool {
		return math.Abs(r.values[running]/w.replicas-w.active()) <= max(2, 0.3*w.active())
	}
	return near(w.from) && near(w.to)
}

// countedOf are counters, by which a restart shows.
func counters(r reading) map[quantity]float64 {
	only := maps.Clone(r.values)
	for _, q := range []quantity{running, waiting, cacheUse} {
		delete(only, q)
	}
	return only
}

// tally counts what is left out.
type tally struct{ left []Left }

func (t *tally) add(where, why string) {
	i := slices.IndexFunc(t.left, func(l Left) bool { return l.Why == why })
	if i < 0 {
		t.left = append(t.left, Left{Why: why, First: where})
		i = len(t.left) - 1
	}
	t.left[i].Count++
}

// moment is one engine on one page.
type moment struct {
	atS   float64
	where string
	atEnd bool
	reading
}

// windowsOf are what engines did between pages, by engine. Pages may come in any order, and twice.
func windowsOf(pages []Page, t *tally) map[string][]window {
	series := map[string][]moment{}
	for _, p := range pages {
		for engine, r := range p.engines {
			of := p.Source + " " + engine
			series[of] = append(series[of], moment{p.AtS, p.Where, p.software == "sglang", r})
		}
	}
	all := map[string][]window{}
	for of, moments := range series {
		all[of] = between(whole(inOrder(moments, t), t), t)
	}
	return all
}

// inOrder sorts by time and leaves the second of two pages of a moment out.
func inOrder(all []moment, t *tally) []moment {
	byTime := func(a, b moment) int { return cmp.Compare(a.atS, b.atS) }
	if !slices.IsSortedFunc(all, byTime) {
		slices.SortStableFunc(all, byTime)
	}
	var kept []moment
	for _, m := range all {
		if n := len(kept); n > 0 && m.atS == kept[n-1].atS {
			t.add(m.where, "a page of the same moment as another")
			continue
		}
		kept = append(kept, m)
	}
	return kept
}

// whole leaves torn pages out: those that lack a counter which came before, and those whose counters fall once and are
// back on the next page.
func whole(all []moment, t *tally) []moment {
	var kept []moment
	for i, m := range all {
		if n := len(kept); n > 0 {
			before := counters(kept[n-1].reading)
			lacks := false
			for q := range before {
				_, has := m.values[q]
				lacks = lacks || !has
			}
			back := i+1 < len(all) && fell(counters(m.reading), before) && !fell(counters(all[i+1].reading), before)
			if lacks || back {
				t.add(m.where, "a torn page: counters are missing, or fall and are back on the next")
				continue
			}
		}
		kept = append(kept, m)
	}
	return kept
}

// fell reports whether any counter is less than before.
func fell(now, before map[quantity]float64) bool {
	for q, v := range before {
		if now[q] < v {
			return true
		}
	}
	return false
}

// gapTimes is how many times the usual distance of two pages is a gap, over which the load may have been any.
const gapTimes = 5

// between makes windows of neighbours.
func between(all []moment, t *tally) []window {
	var distances []float64
	for i := 1; i < len(all); i++ {
		distances = append(distances, all[i].atS-all[i-1].atS)
	}
	usual := 0.0
	if len(distances) > 0 {
		usual = MedianOf(distances).Value
	}
	var windows []window
	for i := 1; i < len(all); i++ {
		a, b := all[i-1], all[i]
		w := window{where: b.where, seconds: b.atS - a.atS, replicas: b.replicas(), atEnd: b.atEnd, by: map[quantity]float64{}, from: a.reading, to: b.reading}
		was := counters(a.reading)
		for q, v := range counters(b.reading) {
			w.by[q] = v - was[q]
		}
		switch {
		case fell(counters(b.reading), was):
			t.add(b.where, "an interval in which counters began anew: the server was restarted")
		case w.seconds > gapTimes*usual:
			t.add(b.where, fmt.Sprintf("a gap between two pages of more than %d times the usual", gapTimes))
		case !(w.slotS() > 0 && w.tokens() > 0):
			t.add(b.where, "an interval in which nothing was decoded")
		default:
			windows = append(windows, w)
		}
	}
	return windows
}
