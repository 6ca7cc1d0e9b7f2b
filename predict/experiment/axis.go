package experiment

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/headway-rl/headway/internal/failure"
)

// axis is a key of a grid with its values: single ones and ranges, in the order
// they were given. Values are worked out one by one, so that an axis may be long.
type axis struct {
	key   string
	parts []axisPart
	size  int64
}

// axisPart is one value, or a range of them.
type axisPart struct {
	text string // a single value, as given; "" for a range
	size int64
	// Value i of a range is from + i·step or, if geometric, from·step^i.
	from, step float64
	geometric  bool
}

// at is the value at an index.
func (a *axis) at(i int64) string {
	for _, p := range a.parts {
		if i < p.size {
			return p.at(i)
		}
		i -= p.size
	}
	panic("headway: a value beyond a grid's axis")
}

func (p *axisPart) at(i int64) string {
	if p.text != "" {
		return p.text
	}
	v := p.from + float64(i)*p.step
	if p.geometric {
		v = p.from * math.Pow(p.step, float64(i))
	}
	// Twelve digits show what was meant: 0.3 + 0.1 is 0.4, not 0.4000000000000001.
	v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', 12, 64), 64)
	if math.Abs(v) < 1e15 && v == math.Trunc(v) {
		return strconv.FormatInt(int64(v), 10)
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// symbols are what the formulas call some keys.
var symbols = map[string]string{"rho": "modelled.train.utilization", "ρ": "modelled.train.utilization", "q": "queue.factor", "C": "rollout.concurrency",
	"S": "rollout.group_size", "B": "train.batch", "theta": "queue.hold", "θ": "queue.hold"}

// sizeMax bounds the simulations of a grid: beyond it nothing could count them.
const sizeMax = int64(1) << 53

// parseGrid reads every --grid KEY=VALUES.
func parseGrid(grid []string) ([]axis, error) {
	var axes []axis
	for _, text := range grid {
		key, list, ok := strings.Cut(text, "=")
		values := splitValues(list)
		if !ok || key == "" || len(values) == 0 {
			return nil, failure.Usage(FlagsHint, "--grid %q: expected KEY=V1,V2 such as queue.factor=1,2,4, or a range such as modelled.train.utilization=0.3..3/0.1", text)
		}
		a := axis{key: key}
		if meant, ok := symbols[key]; ok {
			return nil, failure.Usage(FlagsHint, "--grid %s: unknown key, did you mean %s?", key, meant)
		}
		for _, b := range axes {
			if b.key == key {
				return nil, failure.Usage(FlagsHint, "--grid %s is given twice: list its values in one, KEY=V1,V2", key)
			}
		}
		for _, v := range values {
			part, err := parsePart(v)
			if err != nil {
				return nil, failure.Usage(FlagsHint, "--grid %s: %w", key, err)
			}
			if a.size > sizeMax-part.size {
				return nil, failure.Usage(FlagsHint, "--grid %s: more values than can be counted", key)
			}
			a.parts = append(a.parts, part)
			a.size += part.size
		}
		if v, ok := a.twice(); ok {
			return nil, failure.Usage(FlagsHint, "--grid %s: the value %s is given twice, and its settings would be simulated again; --seeds N repeats every setting with other seeds", key, v)
		}
		axes = append(axes, a)
	}
	return axes, nil
}

// Combinations are all settings of axes given as KEY=VALUES, each as KEY=VALUE,
// the last axis changing fastest. Without axes there is one, without a key. Result
// all is false where they are more than most, and then there are none.
func Combinations(keys []string, most int64) (sets [][]string, all bool, err error) {
	axes, err := parseGrid(keys)
	if err != nil {
		return nil, false, err
	}
	g := Grid{axes: axes, Settings: 1}
	for _, a := range axes {
		if g.Settings *= min(a.size, most+1); g.Settings > most {
			return nil, false, nil
		}
	}
	for i := range g.Settings {
		var set []string
		for _, o := range g.overrides(i) {
			set = append(set, o.key+"="+o.value)
		}
		sets = append(sets, set)
	}
	return sets, true, nil
}

// twice is the first value that an axis has again, numbers by what they are. Of an axis
// of more than 4096 values those are looked at.
func (a *axis) twice() (value string, found bool) {
	seen := map[string]bool{}
	for i := range min(a.size, checkedMax) {
		value := a.at(i)
		same := value
		if v, err := strconv.ParseFloat(value, 64); err == nil {
			same = strconv.FormatFloat(v, 'g', -1, 64)
		}
		if seen[same] {
			return value, true
		}
		seen[same] = true
	}
	return "", false
}

// parsePart reads one value or range. Only what begins with a number and two dots
// before another is taken for a range, so that values may hold dots.
func parsePart(text string) (axisPart, error) {
	from, rest, ok := strings.Cut(text, "..")
	first, err := strconv.ParseFloat(strings.TrimSpace(from), 64)
	if !ok || err != nil {
		return axisPart{text: text, size: 1}, nil
	}
	at := strings.IndexAny(rest, "/x#")
	if at < 0 {
		return axisPart{}, fmt.Errorf("the range %s does not say how it goes on: FROM..TO/STEP adds STEP, FROM..TOxFACTOR multiplies, FROM..TO#N takes N values", text)
	}
	last, err := strconv.ParseFloat(strings.TrimSpace(rest[:at]), 64)
	by, err2 := strconv.ParseFloat(strings.TrimSpace(rest[at+1:]), 64)
	if err != nil || err2 != nil || !isFiniteNumber(first) || !isFiniteNumber(last) || !isFiniteNumber(by) {
		return axisPart{}, fmt.Errorf("the range %s is not made of numbers: FROM..TO/STEP, FROM..TOxFACTOR or FROM..TO#N", text)
	}
	p := axisPart{from: first}
	steps := 0.0
	switch rest[at] {
	case '/':
		if p.step = by; by == 0 || (last-first)/by < 0 {
			return axisPart{}, fmt.Errorf("the range %s never arrives: its step is %g", text, by)
		}
		steps = (last - first) / by
	case 'x':
		if p.step, p.geometric = by, true; !(by > 0) || by == 1 || !(last/first > 0) || math.Log(last/first)/math.Log(by) < 0 {
			return axisPart{}, fmt.Errorf("the range %s never arrives: its factor is %g", text, by)
		}
		steps = math.Log(last/first) / math.Log(by)
	case '#':
		if by != math.Trunc(by) || by < 2 {
			return axisPart{}, fmt.Errorf("the range %s has %g values: expected a whole number of at least 2", text, by)
		}
		steps = by - 1
		p.step = (last - first) / steps
	}
	if steps >= float64(sizeMax) {
		return axisPart{}, fmt.Errorf("the range %s has more values than can be counted", text)
	}
	// A whole number of steps is meant to arrive, whatever binary fractions make of it.
	p.size = int64(math.Floor(steps*(1+1e-12)+1e-9)) + 1
	return p, nil
}

func isFiniteNumber(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// splitValues splits at commas outside of brackets, so that a value may be a
// list or an object in YAML.
func splitValues(list string) []string {
	var values []string
	depth, from := 0, 0
	for i, c := range list {
		switch c {
		case '[', '{':
			depth++
		case ']', '}':
			depth--
		case ',':
			if depth == 0 {
				values = append(values, strings.TrimSpace(list[from:i]))
				from = i + 1
			}
		}
	}
	values = append(values, strings.TrimSpace(list[from:]))
	if slices.Contains(values, "") {
		return nil
	}
	return values
}
