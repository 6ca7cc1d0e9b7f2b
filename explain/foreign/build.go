package foreign

import (
	"cmp"
	"fmt"
	"math"
	"sort"
	"strings"

	"github.com/headway-rl/headway/internal/spelling"
)

// log makes the log of what was collected.
func (c *collector) log(found *files) (*Log, error) {
	if len(c.table.rows) == 0 && len(c.rollouts) == 0 {
		return nil, fmt.Errorf("nothing in these files is what %s logs: no key of its own is there%s", c.framework.Title, c.nearKeys())
	}
	log := &Log{Framework: c.framework.Name, Files: found.paths(), Definition: c.framework.Definition,
		Missing: []Missing{}, Inferred: []string{}, Warnings: []Warning{},
		Rollouts: append(c.rollouts[c.oldest:len(c.rollouts):len(c.rollouts)], c.rollouts[:c.oldest]...)}
	log.dropped, log.droppedTimes = c.dropped, c.droppedTimes
	inferred := map[string]string{}
	values := Values{table: c.table, config: c.config, found: &log.Settings}
	c.settings(log, values, inferred)
	if c.framework.Queue != nil {
		log.Settings.Policy, log.Settings.Preset = c.framework.Queue(values)
	}
	log.Settings.SharedGPUs = c.framework.Shared != nil && c.framework.Shared(values)
	apart := c.series(log, values, inferred)
	if !c.local {
		log.clockS = c.zero
	}
	groupsOf(log)
	if c.framework.Adjust != nil {
		c.framework.Adjust(values, log)
	}
	for i := range log.Series {
		log.Series[i].Steps *= apart
	}
	c.warnOfTable()
	sort.SliceStable(c.warnings, func(i, j int) bool { return c.warnings[i].File < c.warnings[j].File })
	for _, w := range c.warnings {
		log.Warnings = append(log.Warnings, *w)
	}
	for _, formula := range inferred {
		log.Inferred = append(log.Inferred, formula)
	}
	log.Inferred = unique(log.Inferred)
	sort.Strings(log.Inferred)
	log.Missing = append(log.Missing, c.missing(log)...)
	if c.options.Progress != nil {
		c.options.Progress(c.total, c.total)
	}
	return log, nil
}

// warnOfTable says what the table had to do.
func (c *collector) warnOfTable() {
	if c.table.repeated > 0 {
		c.warnings = append(c.warnings, &Warning{Text: "a step was logged again, as after a resume: the later value was taken", Count: c.table.repeated})
	}
	for file, number := range c.table.files {
		if n := c.table.again[number]; n > 0 {
			c.warnings = append(c.warnings, &Warning{File: file, Count: n,
				Text: "it says other than the files before it of the same steps, as after a resume, and was taken; of two runs give one alone"})
		}
	}
	if c.table.width > 1 {
		c.warnings = append(c.warnings, &Warning{Text: fmt.Sprintf("the log is long: each entry of the series stands for %d steps", c.table.width), Count: 1})
	}
}

// settings applies what was given, then the framework's rules in order.
func (c *collector) settings(log *Log, values Values, inferred map[string]string) {
	for name, value := range c.options.Given {
		if i := settingIndex(name); i >= 0 {
			*SettingsKnown[i].At(&log.Settings) = Figure{Value: value, Origin: Given, From: "--set"}
		}
	}
	for _, rule := range c.framework.Settings {
		at := rule.Setting.At(&log.Settings)
		if at.Known() {
			continue
		}
		value, ok := rule.value(values)
		if !ok || !finite(value) {
			continue
		}
		*at = Figure{Value: value, Origin: rule.origin(), From: rule.from()}
		if at.Origin == Inferred {
			inferred[rule.Setting.Name] = rule.Setting.Name + " = " + at.From
		}
	}
}

func (r SettingRule) value(v Values) (float64, bool) {
	switch {
	case r.Of != nil:
		return r.Of(v)
	case len(r.Settings) > 0:
		return v.Config(r.Settings[0])
	default:
		return v.Last(r.Keys[0])
	}
}

func (r SettingRule) origin() Origin {
	switch {
	case r.Formula != "":
		return Inferred
	case len(r.Settings) > 0:
		return Configured
	default:
		return Logged
	}
}

func (r SettingRule) from() string {
	if r.Formula != "" {
		return r.Formula
	}
	return strings.Join(append(append([]string(nil), r.Settings...), r.Keys...), ", ")
}

// series applies the rules to every step, in order. It returns how far apart rows mostly are, in steps.
func (c *collector) series(log *Log, values Values, inferred map[string]string) (apart int64) {
	inner := int64(1)
	if c.framework.Inner != nil {
		inner = max(int64(c.framework.Inner(values)), 1)
	}
	values.before = make([]cell, len(c.table.columns))
	beforeS, beforeStep := math.NaN(), int64(0)
	apart, usualS := c.table.rhythm()
	for _, place := range c.table.order() {
		at := c.table.rows[place]
		step := Step{Step: at.last, Steps: at.steps * inner}
		values.at, values.step = at, &step
		c.given(&step)
		c.apply(values, inferred, true)
		if !math.IsNaN(at.timeS) {
			step.TimeS = Figure{Value: at.timeS - c.zero, Origin: Logged, From: "the log's clock"}
			if !step.PeriodS.Known() && !math.IsNaN(beforeS) && at.timeS > beforeS && at.last > beforeStep {
				c.clockPeriod(&step, (at.timeS-beforeS)/float64(at.last-beforeStep), usualS, float64(inner), inferred)
			}
			beforeS, beforeStep = at.timeS, at.last
		}
		c.apply(values, inferred, false)
		for i, cell := range at.cells {
			if cell.count > 0 {
				values.before[i] = cell
			}
		}
		log.Series = append(log.Series, step)
	}
	return apart
}

// gapTimes is how many times the median of the clock's periods one of them is no period of training, such as the time between
// a crash and a resume.
const gapTimes = 10

// clockPeriod is a step's period where the clock alone says it.
func (c *collector) clockPeriod(step *Step, rowS, usualS, inner float64, inferred map[string]string) {
	if rowS > gapTimes*usualS {
		c.Warn("", 0, fmt.Sprintf("a row comes more than %d times the usual after the one before, as after a crash: its period is left out", gapTimes))
		return
	}
	step.PeriodS = Figure{Value: rowS / inner, Origin: Inferred, From: clockFormula}
	inferred[Period.Name] = Period.Name + " = " + clockFormula
}

// given sets the figures of a step that whoever asks knows better.
func (c *collector) given(step *Step) {
	for name, value := range c.options.Given {
		if i := notionIndex(name); i >= 0 {
			*Notions[i].At(step) = Figure{Value: value, Origin: Given, From: "--set"}
		}
	}
}

// apply applies the rules of the period, or all others, which may ask for it.
func (c *collector) apply(values Values, inferred map[string]string, period bool) {
	for _, rule := range c.framework.Steps {
		if (rule.Notion.Name == Period.Name) == period {
			rule.apply(values, values.step, inferred)
		}
	}
}

const clockFormula = "time between a step's log row and the one before"

func (r StepRule) apply(v Values, step *Step, inferred map[string]string) {
	at := r.Notion.At(step)
	if at.Known() {
		return
	}
	value, ok := r.value(v)
	if !ok || !finite(value) {
		return
	}
	*at = Figure{Value: value, Origin: Logged, From: strings.Join(r.Keys, ", ")}
	if r.Formula != "" {
		at.Origin, at.From = Inferred, r.Formula
		inferred[r.Notion.Name+r.Formula] = r.Notion.Name + " = " + r.Formula
	}
}

func (r StepRule) value(v Values) (float64, bool) {
	switch {
	case r.Of != nil:
		return r.Of(v)
	case r.Fold == FoldMax:
		return v.Top(r.Keys[0])
	default:
		return v.Get(r.Keys[0])
	}
}

// wanted are what a diagnosis leans on: whatever of it is not known is named.
var (
	wantedSettings = []Setting{Concurrency, Batch, GroupSize, Queue}
	wantedNotions  = []Notion{Period, Train, Wait, Sync, Staleness, PreQueue, Tail}
)

// missing names what is not known, why, and how to get it.
func (c *collector) missing(log *Log) []Missing {
	var out []Missing
	settings, notions := wantedSettings, wantedNotions
	if log.Settings.Policy == "synchronous" { // nothing is in flight beside a step, and nothing queues
		settings, notions = []Setting{Batch, GroupSize}, []Notion{Period, Train, Generate}
	}
	for _, s := range settings {
		if !s.At(&log.Settings).Known() {
			out = append(out, c.lack(s.Name, s.Words, c.settingNeeds(s)))
		}
	}
	for _, n := range notions {
		known := false
		for i := range log.Series {
			known = known || n.At(&log.Series[i]).Known()
		}
		if !known {
			out = append(out, c.lack(n.Name, n.Words, c.stepNeeds(n)))
		}
	}
	return out
}

func (c *collector) settingNeeds(s Setting) (keys []string) {
	for _, rule := range c.framework.Settings {
		if rule.Setting.Name == s.Name {
			keys = append(append(keys, rule.Keys...), rule.Settings...)
		}
	}
	return keys
}

func (c *collector) stepNeeds(n Notion) (keys []string) {
	for _, rule := range c.framework.Steps {
		if rule.Notion.Name == n.Name {
			keys = append(keys, rule.Keys...)
		}
	}
	return keys
}

// lack words one missing figure. Keys are what would have said it.
func (c *collector) lack(name, words string, keys []string) Missing {
	m := Missing{What: name + " (" + words + ")"}
	known, there := c.framework.Lacks[name]
	m.Why, m.Get = known.Why, known.Get
	if m.Why == "" {
		m.Why = "no key that would say it is in these files"
		if len(keys) > 0 {
			m.Why += " (" + strings.Join(unique(keys), ", ") + ")"
		} else if !there {
			m.Why = c.framework.Title + " does not log it"
		}
	}
	if near, of := c.nearest(keys); near != "" {
		m.Why += fmt.Sprintf("; the files have %s: was %s renamed?", shortened(near), of)
	}
	m.Get = cmp.Or(m.Get, "give it: --set "+name+"=…")
	return m
}

// nearKeys names a key of the files that looks like one of the framework's.
func (c *collector) nearKeys() string {
	if near, of := c.nearest(c.framework.keys()); near != "" {
		return fmt.Sprintf("; they have %s: was %s renamed?", shortened(near), of)
	}
	return ""
}

// A renamed key differs by a few letters: by as many as a short word's, or by a share of the key's.
const (
	renamedMin   = 3
	renamedShare = 8
)

// nearest finds a key of the files that looks like one of those that are not there. Only keys that begin or end alike
// are compared, as there may be thousands.
func (c *collector) nearest(keys []string) (near, of string) {
	const alike = 4
	unknown := c.unknownKeys()
	for _, key := range keys {
		if c.evidence.seen[key] || len(key) < alike {
			continue
		}
		var candidates []string
		for _, other := range unknown {
			if most := max(renamedMin, len(key)/renamedShare); len(other) > len(key)+most || len(other) < len(key)-most {
				continue // by more letters than a renamed key may differ
			}
			if len(other) >= alike && (other[:alike] == key[:alike] || other[len(other)-alike:] == key[len(key)-alike:]) {
				candidates = append(candidates, other)
			}
		}
		near := spelling.Nearest(key, candidates)
		if near != "" && spelling.Distance(near, key) <= max(renamedMin, len(key)/renamedShare) {
			return near, key
		}
	}
	return "", ""
}

func unique(words []string) []string {
	var out []string
	seen := map[string]bool{}
	for _, word := range words {
		if !seen[word] {
			seen[word] = true
			out = append(out, word)
		}
	}
	return out
}
