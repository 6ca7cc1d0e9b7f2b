package foreign

import (
	"maps"
	"math"
	"slices"
	"strings"
)

// SeriesMax is how many entries a log's series has at most. A longer run's neighbouring steps are merged.
const SeriesMax = 1 << 14

// table keeps what the rules of one framework may ask for, by step, in bounded memory: a cell is what
// was logged under one key in one step, or in the steps merged with it.
type table struct {
	columns  map[string]int // by key or pattern
	patterns []string       // those of the keys that have a *
	fitting  map[string][]int
	width    int64 // steps an entry stands for
	rows     map[int64]*entry
	totals   []cell
	repeated int64
	again    map[int32]int64 // what later files say other than earlier ones of the same steps, by file
	// file numbers the one whose row is added, files all so far; printed is Row.Printed.
	file    int32
	files   map[string]int32
	printed bool
}

// entry is one row of the table.
type entry struct {
	last, steps int64
	timeS       float64 // of its last step; NaN without a clock
	cells       []cell
}

// cell is what one key said in the steps of an entry.
type cell struct {
	sum, top, last float64
	count          int32
	file           int32 // that said last
	printed        bool
	step           int64 // of last
}

func newTable(keys []string) *table {
	t := &table{columns: map[string]int{}, fitting: map[string][]int{}, width: 1, rows: map[int64]*entry{}, again: map[int32]int64{}}
	for _, key := range keys {
		if _, there := t.columns[key]; there {
			continue
		}
		t.columns[key] = len(t.columns)
		if strings.Contains(key, "*") {
			t.patterns = append(t.patterns, key)
			t.columns[matched(key)] = len(t.columns)
		}
	}
	t.totals = make([]cell, len(t.columns))
	return t
}

// matched names the column that counts what a pattern fitted.
func matched(pattern string) string { return "# " + pattern }

// known reports whether a key is asked for by itself or by a pattern.
func (t *table) known(key string) bool {
	if _, there := t.columns[key]; there {
		return true
	}
	return len(t.fits(key)) > 0
}

// fitsMax is how many keys are remembered with the patterns that they fit.
const fitsMax = keysSeenMax

// fits returns the columns of the patterns that a key fits.
func (t *table) fits(key string) []int {
	if len(t.patterns) == 0 {
		return nil
	}
	if columns, there := t.fitting[key]; there {
		return columns
	}
	var columns []int
	for _, pattern := range t.patterns {
		if fits(pattern, key) {
			columns = append(columns, t.columns[pattern])
		}
	}
	if len(t.fitting) < fitsMax {
		t.fitting[strings.Clone(key)] = columns
	}
	return columns
}

// fits reports whether a key is what a pattern says, in which a * stands for any letters.
func fits(pattern, key string) bool {
	before, after, star := strings.Cut(pattern, "*")
	if !star {
		return pattern == key
	}
	if !strings.HasPrefix(key, before) {
		return false
	}
	for rest := key[len(before):]; ; rest = rest[1:] {
		if fits(after, rest) {
			return true
		}
		if rest == "" {
			return false
		}
	}
}

// add puts a row's values under a step. It reports whether any was known. A number tells the rows of a step apart whose
// values are averaged; the later of one number wins.
func (t *table) add(step, number int64, timeS float64, values map[string]float64) bool {
	var at *entry
	sums := map[int]float64{}
	for key, value := range values {
		column, there := t.columns[key]
		fitting := t.fits(key)
		if !there && len(fitting) == 0 {
			continue
		}
		if at == nil {
			at = t.entry(step)
		}
		if there {
			t.put(at, column, number, value)
		}
		for _, pattern := range fitting {
			sums[pattern] += value
			sums[pattern+1]++ // its count stands beside it
		}
	}
	if at == nil {
		return false
	}
	for column, value := range sums {
		t.put(at, column, number, value)
	}
	if timeS != 0 && !(timeS < at.timeS) { // of several processes the one that was last with the step
		at.timeS = timeS
	}
	return true
}

// from says whose row is added next.
func (t *table) from(r Row) {
	file, there := t.files[r.File]
	if !there {
		if t.files == nil {
			t.files = map[string]int32{}
		}
		file = int32(len(t.files))
		t.files[r.File] = file
	}
	t.file, t.printed = file, r.Printed
}

// forgetClock takes the times out of all entries.
func (t *table) forgetClock() {
	for _, at := range t.rows {
		at.timeS = math.NaN()
	}
}

// entry returns the row of a step, merging neighbours where the table is full.
func (t *table) entry(step int64) *entry {
	for {
		at, there := t.rows[floorDivide(step, t.width)]
		if there {
			if step > at.last {
				at.last = step
				at.steps++
			}
			return at
		}
		if len(t.rows) < SeriesMax {
			break
		}
		t.thin()
	}
	at := &entry{last: step, steps: 1, timeS: math.NaN(), cells: make([]cell, len(t.columns))}
	t.rows[floorDivide(step, t.width)] = at
	return at
}

// put sets a cell: the later value of one step, or number within it, wins; those of different ones add up.
func (t *table) put(at *entry, column int, step int64, value float64) {
	c := &at.cells[column]
	if c.count > 0 && c.step == step {
		whole := c.printed && !t.printed // it was rounded, and is not here
		if same(c.last, value) && !whole || t.printed && !c.printed {
			return
		}
		switch {
		case whole:
		case c.file == t.file:
			t.repeated++
		default:
			t.again[t.file]++
		}
		c.sum -= c.last
		t.totals[column].sum -= c.last
		if c.count == 1 {
			c.top = math.Inf(-1)
		}
	} else {
		c.count++
		t.totals[column].count++
		if c.count == 1 {
			c.top = math.Inf(-1)
		}
	}
	c.sum += value
	c.last, c.step, c.top = value, step, max(c.top, value)
	c.file, c.printed = t.file, t.printed
	total := &t.totals[column]
	total.sum += value
	total.top = max(total.top, value)
	if step >= total.step {
		total.last, total.step = value, step
	}
}

// same reports whether two figures are one, which some tracker has rounded to 32 bits.
func same(a, b float64) bool {
	const rounding = 1.0 / (1 << 22)
	return math.Abs(a-b) <= rounding*math.Abs(a)
}

// thin doubles the width of the entries and merges those that fall together.
func (t *table) thin() {
	t.width *= 2
	merged := make(map[int64]*entry, len(t.rows)/2+1)
	for _, step := range t.order() {
		from := t.rows[step]
		place := floorDivide(from.last, t.width)
		into, there := merged[place]
		if !there {
			merged[place] = from
			continue
		}
		into.merge(from)
	}
	t.rows = merged
}

// merge adds a later entry to one.
func (at *entry) merge(later *entry) {
	at.last, at.steps = later.last, at.steps+later.steps
	if !math.IsNaN(later.timeS) {
		at.timeS = later.timeS
	}
	for i := range at.cells {
		a, b := &at.cells[i], later.cells[i]
		switch {
		case b.count == 0:
		case a.count == 0:
			*a = b
		default:
			*a = cell{sum: a.sum + b.sum, top: max(a.top, b.top), last: b.last, step: b.step, count: a.count + b.count}
		}
	}
}

// order returns the places of the entries, ascending.
func (t *table) order() []int64 { return slices.Sorted(maps.Keys(t.rows)) }

// rhythm is how rows mostly follow each other: in steps, and in seconds of the clock a step.
func (t *table) rhythm() (steps int64, stepS float64) {
	var distances []int64
	var periods []float64
	var before *entry
	for _, place := range t.order() {
		at := t.rows[place]
		if before != nil {
			distances = append(distances, (at.last-before.last)/at.steps)
			if period := (at.timeS - before.timeS) / float64(at.last-before.last); period > 0 {
				periods = append(periods, period)
			}
		}
		before = at
	}
	steps = 1
	slices.Sort(distances)
	if n := len(distances); n > 0 && distances[n/2] > 0 && distances[n/2] < distanceMax {
		steps = distances[n/2]
	}
	slices.Sort(periods)
	if n := len(periods); n > 0 {
		return steps, periods[n/2]
	}
	return steps, math.Inf(1)
}

// distanceMax bounds the distance of rows: what is further apart counts no steps.
const distanceMax = 1 << 20

func floorDivide(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
