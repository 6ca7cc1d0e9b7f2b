package foreign

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/headway-rl/headway/internal/spelling"
)

// Options of Read. The zero value finds the framework itself.
type Options struct {
	// From names the framework, empty for found by its keys.
	From string
	// Run names one run where a file holds several, as W&B's exports of a chart do.
	Run string
	// Given are settings, or a step's notions, by name, that the caller knows better than the files.
	Given map[string]float64
	// Progress is told now and then how many bytes have been read, and of how many; nil reports nothing.
	Progress func(done, total int64)
}

// Read reads a run's log: files, or directories that a framework or a tracker
// left. Files are read as streams, in memory that does not grow with them. A fault
// inside of a file is among the log's warnings. An error is a log that cannot be
// read, or of which the framework is not known.
func Read(ctx context.Context, paths []string, options Options) (*Log, error) {
	if err := checkGiven(options.Given); err != nil {
		return nil, err
	}
	if slices.Contains(paths, "") {
		return nil, errors.New("an empty path names no log")
	}
	found, err := expand(ctx, paths, options.Run)
	if err != nil {
		return nil, err
	}
	framework, stepped, err := choose(ctx, found, options.From)
	if err != nil {
		return nil, err
	}
	c := newCollector(framework, options, found.bytes)
	c.stepped = stepped
	for _, source := range found.sources {
		if err := source.Read(ctx, c); err != nil {
			return nil, fmt.Errorf("%s: %w", source.Path(), err)
		}
	}
	if err := c.refuseOthers(options.From); err != nil {
		return nil, err
	}
	return c.log(found)
}

func checkGiven(given map[string]float64) error {
	for name, value := range given {
		if settingIndex(name) < 0 && notionIndex(name) < 0 {
			return fmt.Errorf("%q is no figure of a log%s", name, givenNames(name))
		}
		if !finite(value) || value < 0 {
			return fmt.Errorf("%s = %g: a number of at least 0 was expected", name, value)
		}
	}
	return nil
}

// givenNames says what can be given, and what a wrong name may have meant.
func givenNames(wrong string) string {
	var known []string
	for _, s := range SettingsKnown {
		known = append(known, s.Name)
	}
	for _, n := range Notions {
		known = append(known, n.Name)
	}
	hint := ""
	if near := spelling.Nearest(wrong, known); near != "" {
		hint = fmt.Sprintf(": did you mean %s?", near)
	}
	return fmt.Sprintf("%s (known: %s)", hint, strings.Join(known, ", "))
}

func settingIndex(name string) int {
	return slices.IndexFunc(SettingsKnown, func(s Setting) bool { return s.Name == name })
}

func notionIndex(name string) int {
	return slices.IndexFunc(Notions, func(n Notion) bool { return n.Name == name })
}

// choose finds the framework of the files: as named, by a file that only it writes, or by the
// keys at their beginnings; and whether any row there says its step.
func choose(ctx context.Context, found *files, from string) (framework *Framework, stepped bool, err error) {
	scout := &scout{evidence: newEvidence()}
	if from != "" {
		among, tracker, err := named(from)
		if err != nil {
			return nil, false, err
		}
		if tracker {
			if err := found.ofWandb(); err != nil {
				return nil, false, err
			}
		}
		if len(among) == 1 {
			framework, scout.named = among[0], true
		}
		scout.evidence.among = among
	}
	for _, source := range found.sources {
		scout.rows = 0
		if own, is := source.(ownSource); is {
			scout.evidence.marks[own.framework] = source.Path()
			continue
		}
		if err := source.Read(ctx, scout); err != nil && !errors.Is(err, errEnough) {
			return nil, false, fmt.Errorf("%s: %w", source.Path(), err)
		}
	}
	if framework == nil {
		framework, err = scout.evidence.framework()
	}
	if scout.evidence.synchronousVerl(framework) {
		framework = verlSync
	}
	return framework, scout.steps(framework), err
}

// errEnough ends a reading that has seen enough.
var errEnough = errors.New("enough was read")

// scoutRows is how many rows of each file are looked at for its framework, where it shows within them.
const scoutRows = 2000

// scout takes a file's beginning, to find whose log it is.
type scout struct {
	evidence *evidence
	rows     int
	stepped  bool
	named    bool // the framework is
}

// steps reports whether any row said a step, in the framework's words or the tracker's.
func (s *scout) steps(framework *Framework) bool {
	return s.stepped || framework != nil && slices.ContainsFunc(framework.StepKeys, func(key string) bool { return s.evidence.seen[key] })
}

func (s *scout) Row(r Row) error {
	for key := range r.Values {
		s.evidence.key(key)
	}
	s.rows++
	s.stepped = s.stepped || r.HasStep
	if s.rows >= scoutRows && (s.named || len(s.evidence.marked()) > 0) {
		return errEnough
	}
	return nil
}

func (s *scout) Setting(key, value string)  { s.evidence.setting(key, value) }
func (s *scout) Rollout(Rollout)            {}
func (s *scout) Warn(string, int64, string) {}
func (s *scout) Read(int64)                 {}

// collector takes a log's files for one framework.
type collector struct {
	framework *Framework
	options   Options
	evidence  *evidence
	table     *table
	config    map[string]string
	rollouts  []Rollout // a ring, once full
	oldest    int
	// dropped is Log.dropped, droppedTimes Log.droppedTimes.
	dropped, droppedTimes bool
	warnings              []*Warning
	warned                map[string]*Warning
	done                  int64
	total                 int64
	shown                 int64
	clock                 map[string]float64 // the last time of each file
	zero                  float64            // the first time of all
	local                 bool               // the clocks so far are of an unknown zone
	stepped               bool               // whether rows say their steps
	unknown               []string           // see unknownKeys
	nextStep              map[string]int64
	counted               map[string]int64 // the last step of each file by the framework's own count
}

func newCollector(framework *Framework, options Options, total int64) *collector {
	return &collector{framework: framework, options: options, evidence: newEvidence(), table: newTable(framework.keys()),
		config: map[string]string{}, warned: map[string]*Warning{}, total: total, clock: map[string]float64{}, nextStep: map[string]int64{}, counted: map[string]int64{}}
}

// keys are all that the framework's rules ask for.
func (f *Framework) keys() []string {
	keys := append([]string(nil), f.StepKeys...)
	for _, rule := range f.Steps {
		keys = append(keys, rule.Keys...)
	}
	for _, rule := range f.Settings {
		keys = append(keys, rule.Keys...)
	}
	return keys
}

// Row puts a row into the table.
func (c *collector) Row(r Row) error {
	part := ""
	if c.framework.Part != nil {
		part = c.framework.Part(r)
	}
	step, number, stepped := c.step(&r)
	values := r.Values
	if part != "" {
		values = make(map[string]float64, len(r.Values))
	}
	for key, value := range r.Values {
		c.evidence.key(key)
		if len(key) > KeyMax {
			c.Warn(r.File, r.Line, longKey)
			delete(values, key)
			continue
		}
		if !finite(value) {
			c.Warn(r.File, r.Line, fmt.Sprintf("%s is no finite number; left out", shortened(key)))
			delete(values, key)
			continue
		}
		if part != "" {
			values[c.partKey(part, key)] = value
		}
	}
	if !stepped && c.stepped {
		c.Warn(r.File, r.Line, "a row says no step, where others do; left out")
		return nil
	}
	if !stepped {
		step, number = c.nextStep[r.File], c.nextStep[r.File]
		c.nextStep[r.File]++
		c.Warn(r.File, r.Line, "a row says no step; rows without one are counted")
	}
	c.zone(&r)
	c.table.from(r)
	if c.table.add(step, number, r.TimeS, values) {
		c.tick(r)
	}
	return nil
}

// partKey is the key as the rules know it: with the part before it where they tell parts apart.
func (c *collector) partKey(part, key string) string {
	if whole := part + ":" + key; c.table.known(whole) {
		return whole
	}
	return key
}

// step returns a row's train step, and the number of its figures within: those of another number are averaged. A row may lack
// the framework's own count, while others of its file have it. It was logged beside the steps: it belongs to the one before it,
// of which it is not the time.
func (c *collector) step(r *Row) (step, number int64, stepped bool) {
	for _, key := range c.framework.StepKeys {
		if value, there := r.Values[key]; there && finite(value) {
			c.counted[r.File] = int64(value)
			return int64(value), int64(value), true
		}
	}
	last, counted := c.counted[r.File]
	if c.framework.Micro != nil {
		number, each, is := c.framework.Micro(*r, Values{config: c.config})
		switch {
		case is && each >= 1:
			return floorDivide(number, int64(each)), number, true
		case is && counted: // a step of one has its number, and one of several is behind the count of steps
			return min(number, last), number, true
		case is:
			return number, number, true
		}
	}
	if len(c.framework.StepKeys) > 0 {
		r.TimeS = 0
	}
	if counted {
		return last, last, true
	}
	return r.Step, r.Step, r.HasStep
}

// zone has a clock whose zone is unknown give way to one that is known.
func (c *collector) zone(r *Row) {
	switch {
	case r.TimeS == 0:
	case r.Printed && c.zero != 0 && !c.local:
		r.TimeS = 0
	case !r.Printed && c.local:
		c.table.forgetClock()
		clear(c.clock)
		c.zero, c.local = 0, false
	case r.Printed:
		c.local = true
	}
}

// tick watches the clock of a file.
func (c *collector) tick(r Row) {
	if r.TimeS == 0 {
		return
	}
	if before, there := c.clock[r.File]; there && r.TimeS < before {
		c.Warn(r.File, r.Line, "the clock goes back")
	}
	c.clock[r.File] = r.TimeS
	if c.zero == 0 || r.TimeS < c.zero {
		c.zero = r.TimeS
	}
}

// Rollout keeps a rollout, dropping the oldest beyond RolloutsMax.
func (c *collector) Rollout(r Rollout) {
	if len(r.Group) > KeyMax {
		c.Warn("", 0, "the name of a rollout's group is longer than a key may be; left out")
		return
	}
	if len(c.rollouts) < RolloutsMax {
		c.rollouts = append(c.rollouts, r)
		return
	}
	c.Warn("", 0, tooManyRollouts)
	c.dropped, c.droppedTimes = true, c.droppedTimes || c.rollouts[c.oldest].StartS.Known()
	c.rollouts[c.oldest] = r
	c.oldest = (c.oldest + 1) % RolloutsMax
}

// Setting keeps a setting.
func (c *collector) Setting(key, value string) {
	if len(key) > KeyMax {
		c.Warn("", 0, longKey)
		return
	}
	c.evidence.setting(key, value)
	if _, there := c.config[key]; !there && len(c.config) >= SettingsMax {
		c.Warn("", 0, "the config has more settings than are kept")
		return
	}
	if len(value) > ValueMax {
		value = value[:ValueMax]
	}
	c.config[strings.Clone(key)] = strings.Clone(value)
}

// warningsMax is how many different warnings are kept.
const warningsMax = 200

// Warn counts a warning.
func (c *collector) Warn(file string, line int64, text string) {
	key := file + "\x00" + text
	if w, there := c.warned[key]; there {
		w.Count++
		return
	}
	if len(c.warnings) >= warningsMax {
		file, line, text = "", 0, "further warnings of other kinds"
		key = "\x00" + text
		if w, there := c.warned[key]; there {
			w.Count++
			return
		}
	}
	w := &Warning{File: file, Line: line, Text: text, Count: 1}
	c.warned[key] = w
	c.warnings = append(c.warnings, w)
}

// progressBytes is after how many further bytes progress is told.
const progressBytes = 1 << 20

// Read counts bytes.
func (c *collector) Read(bytes int64) {
	c.done += bytes
	if c.options.Progress != nil && c.done-c.shown >= progressBytes {
		c.shown = c.done
		c.options.Progress(c.done, c.total)
	}
}

// refuseOthers is an error if keys of another framework turned up in the files.
func (c *collector) refuseOthers(from string) error {
	found := c.evidence.marked()
	rivals, _, _ := named(from) // whose keys the name does not decide between
	if from == "" {
		rivals = frameworks
	}
	others, mixed := false, false
	for _, f := range found {
		if f != c.framework && (c.framework != verlSync || f != verlV1 && f != verlFullyAsync) { // a config of verl has keys of all its trainers
			others = true
			mixed = mixed || slices.Contains(rivals, f)
		}
	}
	if !others {
		return nil
	}
	if mixed {
		if c.evidence.marks[c.framework] == "" {
			c.evidence.marks[c.framework] = "its own files"
			found = append([]*Framework{c.framework}, found...)
		}
		return c.evidence.mixed(found)
	}
	for _, f := range found {
		if f != c.framework {
			c.Warn("", 0, fmt.Sprintf("the log has keys of %s (%s), which are left out as --from says %s", f.Name, c.evidence.marks[f], from))
		}
	}
	return nil
}

// unknownKeys are the keys seen that no rule asks for, in order. It is asked when everything has been read.
func (c *collector) unknownKeys() []string {
	if c.unknown != nil {
		return c.unknown
	}
	keys := []string{}
	for key := range c.evidence.seen {
		if !c.table.known(key) {
			keys = append(keys, key)
		}
	}
	sort.Strings(keys)
	c.unknown = keys
	return keys
}

// keyShown is how many letters of a key are shown.
const keyShown = 120

func shortened(key string) string {
	if len(key) <= keyShown {
		return key
	}
	return strings.ToValidUTF8(key[:keyShown], "") + "…"
}
