package calibrate

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/headway-rl/headway/observe/report"
)

// Constant is a figure that a prediction rests on, determined by what was read or assumed.
type Constant struct {
	// Name says what it is, with its unit. Key is the document's, empty where no key has it.
	Name string `json:"name"`
	Key  string `json:"key,omitempty"`
	// Value lies between Low and High: with 95 % where it was determined, else the values it commonly has. Of a curve it
	// is the speed at the most slots.
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
	// Determined tells measured from assumed. From says what of, or why not and how to get it.
	Determined bool   `json:"determined"`
	From       string `json:"from"`
	// Curve, Lengths by group and Text are the values of keys that are no numbers.
	Curve   []Point `json:"curve,omitempty"`
	Lengths [][]int `json:"-"`
	Text    string  `json:"text,omitempty"`
	// Moves says how the predicted time between two updates moves when this constant alone does. It is nil where it was
	// not asked for, or the constant is no key.
	Moves *Moves `json:"moves,omitempty"`
}

// Moves are the least and the greatest of three predicted times between two updates, in seconds. A constant is as low
// as it may be, has its value, or is as high as it may be.
type Moves struct {
	LeastS float64 `json:"least_s"`
	MostS  float64 `json:"most_s"`
	// Share is their distance over the period predicted with the value.
	Share float64 `json:"share"`
}

// Findings are the constants that pages or logs determined, and those that are assumed beside them.
type Findings struct {
	// Of names what was read, for people.
	Of        []string   `json:"of"`
	Constants []Constant `json:"constants"`
	// Engines is how many equal engines the responses at once are spread over; 0 where no record tells engines apart.
	Engines int `json:"engines,omitempty"`
	// PeriodS is the time between two updates that the document predicts; 0 where it was not asked for. RunPeriodS is
	// the one that the run logged, 0 for none.
	PeriodS    float64 `json:"period_s,omitempty"`
	RunPeriodS float64 `json:"run_period_s,omitempty"`
	// Left is what was left out, Notes what a reader should know.
	Left  []Left   `json:"left_out"`
	Notes []string `json:"notes"`
}

// Left is something that was left out, so often, the first time at a place.
type Left struct {
	Why   string `json:"why"`
	Count int    `json:"count"`
	First string `json:"first"`
}

// Find returns the constant of a key, and whether there is one.
func (f Findings) Find(key string) (Constant, bool) {
	i := slices.IndexFunc(f.Constants, func(c Constant) bool { return c.Key == key })
	if i < 0 {
		return Constant{}, false
	}
	return f.Constants[i], true
}

// Join adds what another record determined. Of a key that both have, the first that determined it stays.
func (f Findings) Join(other Findings) Findings {
	f.Of = append(slices.Clone(f.Of), other.Of...)
	f.Constants = slices.Clone(f.Constants)
	f.spread(other)
	for _, c := range other.Constants {
		i := slices.IndexFunc(f.Constants, func(have Constant) bool { return have.Name == c.Name || have.Key != "" && have.Key == c.Key })
		switch {
		case i < 0:
			f.Constants = append(f.Constants, c)
		case !f.Constants[i].Determined && c.Determined:
			f.Constants[i] = c
		}
	}
	f.RunPeriodS = max(f.RunPeriodS, other.RunPeriodS)
	f.Left, f.Notes = append(slices.Clone(f.Left), other.Left...), append(slices.Clone(f.Notes), other.Notes...)
	if c, ok := f.Find("modelled.length"); ok && c.Determined { // lengths themselves say more than their mean and tail
		f.Constants = slices.DeleteFunc(f.Constants, func(c Constant) bool { return strings.HasPrefix(c.Key, "modelled.length.") })
	}
	for i, key := range speedKeys {
		if c, ok := f.Find(key); ok && c.Determined {
			f.Constants = slices.DeleteFunc(f.Constants, func(c Constant) bool { return slices.Contains(speedKeys[i+1:], c.Key) })
			break
		}
	}
	return f
}

// spread takes the responses at once of a whole run, where those of only some of its engines were read.
func (f *Findings) spread(run Findings) {
	i := slices.IndexFunc(f.Constants, func(c Constant) bool { return c.Key == concurrencyKey })
	all, ok := run.Find(concurrencyKey)
	if i < 0 || !ok || f.Engines < 1 || all.Value < spreadTimes*f.Constants[i].Value {
		return
	}
	each := f.Constants[i].Value / float64(f.Engines)
	f.Engines = max(int(math.Round(all.Value/each)), 1)
	f.Constants[i] = all
	f.Notes = append(slices.Clone(f.Notes), fmt.Sprintf("the run has %s responses at once and an engine %s: the document has %d such engines; give the pages of all if they are not", short(all.Value), short(each), f.Engines))
}

// spreadTimes is how many times as many responses a run has as the engines that were read, for them to be a part.
const spreadTimes = 1.5

// concurrencyKey has the responses at once over all engines.
const concurrencyKey = "rollout.concurrency"

// speedKeys say how fast engines are, the best first: a document has one of them.
var speedKeys = []string{"modelled.decode_curve", "modelled.decode_tokens_per_s", "modelled.throughput_tokens_per_s"}

// assumption is a constant that every prediction needs, with the values it commonly has.
type assumption struct {
	key, name        string
	value, low, high float64
	get              string
	unless           []string // keys that stand in its place
}

// assumptions are what the document's defaults assume. Their ranges are wide on purpose: they say what a
// measurement would be worth.
var assumptions = []assumption{
	{"modelled.decode_tokens_per_s", "speed of a slot, tokens/s", 50, 20, 100, "give --metrics of a running server, or measure one: headway calibrate URL", []string{"modelled.decode_curve", "modelled.throughput_tokens_per_s"}},
	{"modelled.length.mean_tokens", "mean response before the cap, tokens", 1400, 500, 5000, "give --metrics of a server under the run's load, or a run's log", []string{"modelled.length"}},
	{"modelled.length.tailness", "tail of the responses, 0 to 100", 50, 20, 80, "give --metrics of a server that has a histogram of lengths", []string{"modelled.length"}},
	{"modelled.train.utilization", "rollout over train throughput", 1, 0.5, 2, "give --run with the log of a run", []string{"modelled.train.step_s"}},
	{"modelled.sync.time_s", "weight sync, s", 0, 0, 20, "give --run with the log of a run", nil},
	{"train.batch", "rollouts of a batch", 128, 64, 512, "give --run with the log of a run, or write it yourself", nil},
	{"rollout.group_size", "rollouts of one prompt", 8, 4, 16, "give --run with the log of a run, or write it yourself", nil},
}

// Assume adds the constants that nothing determined.
func (f Findings) Assume() Findings {
	f.Constants = slices.Clone(f.Constants)
	has := func(key string) bool { _, ok := f.Find(key); return ok }
	for _, a := range assumptions {
		if a.key == "rollout.group_size" {
			batch, _ := f.Find("train.batch")
			a.value, a.low, a.high = divisor(batch.Value, a.value), divisor(batch.Value, a.low), divisor(batch.Value, a.high)
		}
		if !has(a.key) && !slices.ContainsFunc(a.unless, has) {
			f.Constants = append(f.Constants, Constant{Name: a.name, Key: a.key, Value: a.value, Low: a.low, High: a.high, From: a.get})
		}
	}
	return f
}

// divisor is the greatest number up to most of which a batch is whole groups.
func divisor(batch, most float64) float64 {
	for most > 1 && math.Mod(batch, most) != 0 {
		most--
	}
	return most
}

// end is which value of a constant a document takes.
type end int

const (
	atValue end = iota
	atLow
	atHigh
)

// yaml is a constant's value in a document.
func (c Constant) yaml(at end) string {
	v := [...]float64{c.Value, c.Low, c.High}[at]
	if c.Key == prefillKey {
		return fmt.Sprintf("{tokens_per_s: %s, mode: engine}", number(v))
	}
	if c.Text != "" {
		return c.Text
	}
	if len(c.Lengths) > 0 {
		return c.groups(v / c.Value)
	}
	if len(c.Curve) == 0 {
		if slices.Contains(wholeKeys, c.Key) {
			v = max(math.Round(v), 1)
		}
		return number(v)
	}
	var cells []string
	for _, block := range pool(c.Curve) {
		for _, p := range block.points {
			cells = append(cells, fmt.Sprintf("{active: %d, tokens_per_s: %s}", p.Slots, number(block.speed*v/c.Value)))
		}
	}
	return "[" + strings.Join(cells, ", ") + "]"
}

// groups are the measured lengths, so many times as long.
func (c Constant) groups(times float64) string {
	var all []string
	for _, group := range c.Lengths {
		cells := make([]string, len(group))
		for i, n := range group {
			cells[i] = strconv.Itoa(max(int(math.Round(times*float64(n))), 1))
		}
		all = append(all, "["+strings.Join(cells, ", ")+"]")
	}
	return "{kind: empirical, groups: [" + strings.Join(all, ", ") + "]}"
}

// prefillKey has a speed and how it is shared.
const prefillKey = "modelled.prefill"

// wholeKeys have whole numbers.
var wholeKeys = []string{concurrencyKey, "rollout.group_size", "train.batch", "modelled.prompt_tokens", "modelled.length.cap_tokens"}

// Document is what was determined as keys of a document that headway simulate takes, and headway plan with --measured.
// Assumed constants are comments, but for the speed of the trainer, which a simulation needs.
func (f Findings) Document() []byte { return f.document("", atValue) }

// At is the document with every constant, the assumed ones too, and one key at its low or its high end.
func (f Findings) At(key string, high bool) []byte {
	at := atLow
	if high {
		at = atHigh
	}
	return f.document(key, at)
}

// Whole is the document with the assumed constants too.
func (f Findings) Whole() []byte { return f.document("-", atValue) }

// document writes the keys. A key that is named has assumed constants written too.
func (f Findings) document(key string, at end) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "# By headway calibrate, of %s.\n", strings.ReplaceAll(strings.Join(f.Of, ", "), "\n", " "))
	for _, note := range f.Notes {
		fmt.Fprintf(&b, "# %s\n", strings.ReplaceAll(note, "\n", " "))
	}
	written := slices.Clone(f.Constants)
	slices.SortStableFunc(written, func(a, b Constant) int { return strings.Compare(a.Key, b.Key) })
	var path []string
	engines := ""
	for _, c := range written {
		if c.Key == "" || !c.Determined && key == "" && c.Key != "modelled.train.utilization" {
			fmt.Fprintf(&b, "# %s\n", strings.ReplaceAll(c.comment(), "\n", " "))
			continue
		}
		parts := strings.Split(c.Key, ".")
		same := 0
		for same < len(parts)-1 && same < len(path) && parts[same] == path[same] {
			same++
		}
		path = parts[:len(parts)-1]
		for depth := same; depth < len(path); depth++ {
			fmt.Fprintf(&b, "%s%s:\n", strings.Repeat("  ", depth), path[depth])
		}
		use := atValue
		if c.Key == key {
			use = at
		}
		if c.Key == concurrencyKey && f.Engines > 1 {
			c = c.over(f.Engines, &engines, use)
		}
		fmt.Fprintf(&b, "%s%s: %s # %s\n", strings.Repeat("  ", len(path)), parts[len(path)], c.yaml(use), strings.ReplaceAll(c.comment(), "\n", " "))
	}
	return []byte(b.String() + engines)
}

// over is the responses at once in equal shares of several engines, which are written too.
func (c Constant) over(n int, engines *string, at end) Constant {
	v := [...]float64{c.Value, c.Low, c.High}[at]
	slots := max(int(math.Round(v/float64(n))), 1)
	*engines = fmt.Sprintf("engines: [{count: %d, slots: %d}]\n", n, slots)
	shared := float64(n * slots)
	c.Value, c.Low, c.High = shared, shared, shared
	return c
}

// comment says how a constant was come by.
func (c Constant) comment() string {
	if c.Text != "" {
		return c.From
	}
	if !c.Determined {
		return fmt.Sprintf("not determined: %s, %s to %s; %s", c.Name, number(c.Low), number(c.High), c.From)
	}
	if c.Key == "" {
		return fmt.Sprintf("%s: %s (%s to %s), %s", c.Name, number(c.Value), number(c.Low), number(c.High), c.From)
	}
	if c.Low == c.High {
		return c.From
	}
	return fmt.Sprintf("%s to %s, %s", number(c.Low), number(c.High), c.From)
}

// Table is the constants, determined ones first, each kind by how far it moves the answer.
func (f Findings) Table(determined bool) report.Table {
	t := report.Table{Title: "Determined", Header: []string{"constant", "value", "95 %", "moves the step", "from"}}
	if !determined {
		t.Title, t.Header[2], t.Header[4] = "Not determined", "commonly", "how to get it"
		t.Header[1] = "assumed"
	}
	sorted := slices.Clone(f.Constants)
	slices.SortStableFunc(sorted, func(a, b Constant) int {
		switch x, y := a.share(), b.share(); {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
	for _, c := range sorted {
		if c.Determined != determined || c.Text != "" {
			continue
		}
		moved := "–"
		if c.Moves != nil {
			moved = fmt.Sprintf("%.0f %%: %s to %s s", 100*c.Moves.Share, short(c.Moves.LeastS), short(c.Moves.MostS))
		}
		within := short(c.Low) + " to " + short(c.High)
		if c.Low == c.High {
			within = "as set"
		}
		t.Rows = append(t.Rows, []string{c.Name, short(c.Value), within, moved, c.From})
	}
	return t
}

// share is how far a constant moves the answer, 0 where that is not known.
func (c Constant) share() float64 {
	if c.Moves == nil {
		return 0
	}
	return c.Moves.Share
}

// short prints three digits, or all before the point.
func short(v float64) string {
	if a := math.Abs(v); a >= 1000 {
		return number(math.Round(v))
	}
	return strings.TrimSuffix(fmt.Sprintf("%.3g", v), ".")
}

// FindingSentences say what the constants come to.
func (f Findings) FindingSentences() []string {
	var all []string
	if f.PeriodS > 0 {
		text := fmt.Sprintf("With these, the time between two updates is %s s.", short(f.PeriodS))
		if f.RunPeriodS > 0 {
			text += fmt.Sprintf(" The run took %s s: the prediction is off by %+.0f %%.", short(f.RunPeriodS), 100*(f.PeriodS/f.RunPeriodS-1))
		}
		all = append(all, text)
	}
	worst := Constant{}
	for _, c := range f.Constants {
		if !c.Determined && c.share() > worst.share() {
			worst = c
		}
	}
	if worst.share() > 0 {
		all = append(all, fmt.Sprintf("The most is gained by %s, which moves it by %.0f %%: %s.", worst.Name, 100*worst.share(), worst.From))
	}
	for _, l := range f.Left {
		all = append(all, fmt.Sprintf("Left out: %s (%d times, first at %s).", l.Why, l.Count, l.First))
	}
	return all
}
