package foreign

import (
	"strconv"
	"strings"
)

// Values are what rules compute from: one step's figures, the whole log's, the config and
// the settings found so far. Every method says whether there is such a figure.
type Values struct {
	table  *table
	at     *entry // nil outside of a step
	before []cell // the last value of each column before this step
	config map[string]string
	found  *Settings
	step   *Step // what earlier rules made of this step
}

// Get returns what this step logged under a key: the mean where steps were merged.
func (v Values) Get(key string) (float64, bool) {
	c, ok := v.cell(key)
	if !ok {
		return 0, false
	}
	return c.sum / float64(c.count), true
}

// Top returns the largest that this step logged under a key.
func (v Values) Top(key string) (float64, bool) {
	c, ok := v.cell(key)
	return c.top, ok
}

// Rise returns by how much a counter grew since the step that logged it before, a step. A
// counter that fell was started anew: its value is its rise.
func (v Values) Rise(key string) (float64, bool) {
	c, ok := v.cell(key)
	if !ok || v.before == nil {
		return 0, false
	}
	before := v.before[v.table.columns[key]]
	if before.count == 0 || c.step <= before.step {
		return 0, false
	}
	steps := float64(c.step - before.step) // not all of which need have a row
	if c.last < before.last {
		return c.last / steps, true
	}
	return (c.last - before.last) / steps, true
}

// Matched returns how many keys of this step fitted a pattern.
func (v Values) Matched(pattern string) (float64, bool) { return v.Get(matched(pattern)) }

// Average returns the mean of Matched keys.
func (v Values) Average(pattern string) (float64, bool) {
	sum, ok := v.Get(pattern)
	count, _ := v.Matched(pattern)
	if !ok || count == 0 {
		return 0, false
	}
	return sum / count, true
}

// Mean returns the mean over the whole log of what was logged under a key.
func (v Values) Mean(key string) (float64, bool) {
	c, ok := v.total(key)
	if !ok {
		return 0, false
	}
	return c.sum / float64(c.count), true
}

// Last returns what the log's last step that has it says under a key.
func (v Values) Last(key string) (float64, bool) {
	c, ok := v.total(key)
	return c.last, ok
}

// Config returns a setting of the config as a number; true is 1, false 0.
func (v Values) Config(key string) (float64, bool) {
	return number(v.config[key])
}

// Text returns a setting of the config, empty if there is none.
func (v Values) Text(key string) string { return v.config[key] }

// Setting returns a setting that a rule before this one, or the caller, has given.
func (v Values) Setting(s Setting) (float64, bool) {
	f := *s.At(v.found)
	return f.Value, f.Known()
}

// Step returns a figure of this step that a rule before this one has found.
func (v Values) Step(n Notion) (float64, bool) {
	if v.step == nil {
		return 0, false
	}
	f := *n.At(v.step)
	return f.Value, f.Known()
}

func (v Values) cell(key string) (cell, bool) {
	column, there := v.table.columns[key]
	if !there || v.at == nil || v.at.cells[column].count == 0 {
		return cell{}, false
	}
	return v.at.cells[column], true
}

func (v Values) total(key string) (cell, bool) {
	column, there := v.table.columns[key]
	if !there || v.table.totals[column].count == 0 {
		return cell{}, false
	}
	return v.table.totals[column], true
}

// number reads a setting as a number.
func number(text string) (float64, bool) {
	switch strings.ToLower(text) {
	case "true":
		return 1, true
	case "false":
		return 0, true
	case "", "none", "null":
		return 0, false
	}
	value, err := strconv.ParseFloat(strings.ReplaceAll(text, "_", ""), 64)
	return value, err == nil && finite(value)
}

func finite(x float64) bool { return x-x == 0 }
