package foreign

import (
	"regexp"
	"strconv"
	"strings"
	"time"
)

var (
	// escapes are a terminal's: colours, cursor moves, titles.
	escapes = regexp.MustCompile("\x1b(?:\\[[0-9;:?]*[ -/]*[@-~]|\\][^\x07\x1b]*(?:\x07|\x1b\\\\)|[@-Z\\\\-_])")
	// actors are what ray puts before a line of an actor or a task.
	actors = regexp.MustCompile(`^\s*\([A-Za-z_][\w.:]* (?:pid=\d+)(?:, ip=[0-9a-fA-F.:]+)?\) ?`)
	// repeats are what ray adds to a line that it left out for others.
	repeats = regexp.MustCompile(`\s*\[repeated \d+x across (?:cluster|all nodes)[^\]]*\]$`)
)

// printed is a line without what a terminal makes of it.
func printed(line []byte) string {
	text := string(line)
	if strings.IndexByte(text, 0x1b) >= 0 {
		text = escapes.ReplaceAllString(text, "")
	}
	if strings.Contains(text, "pid=") {
		text = actors.ReplaceAllString(text, "")
	}
	if strings.Contains(text, "[repeated ") {
		text = repeats.ReplaceAllString(text, "")
	}
	return strings.TrimRight(text, " \t\n")
}

// says is what a line says of steps.
type says struct {
	number       int64
	begins, ends bool
}

// markers are lines that name a step without its figures. What a begun step prints follows; what an ended one printed is
// there already. Less is what a tracker's count is below the printed one.
var markers = []struct {
	has  string // what a line must hold for the form to be tried
	form *regexp.Regexp
	ends bool
	less int64
}{
	{"Train step ", regexp.MustCompile(`\bTrain step (\d+)/\d+ done\b`), false, 1},                   // AReaL, whose trackers count from 0
	{"= Step ", regexp.MustCompile(`^=+ Step (\d+)/\d+ =+$`), false, 0},                              // NeMo-RL
	{"Step coordination", regexp.MustCompile(`\bStep coordination: training_step=(\d+)`), false, -1}, // NeMo-RL, which counts from 0 here alone
	{"train step ", regexp.MustCompile(`^train step (\d+)/\d+  trainer_v=`), true, 0},                // NeMo-RL's single controller
	{"pipeline ", regexp.MustCompile(`\bpipeline (?:rollout global )?step (\d+) start`), false, 0},   // ROLL
	{"pipeline step ", regexp.MustCompile(`\bpipeline step (\d+) finished`), true, 0},                // ROLL
}

var (
	// numbered names the step of the figures on its line: Global step 3: {…}, perf 3: {…}.
	numbered = regexp.MustCompile(`(?i)(?:\bglobal step|\bcompleted steps|\bstep|\bperf|\brollout|\bpassrate|\bmultiturn)[ :=#]+(\d+)(?:/\d+)?\s*[:|]?\s*$`)
	// pair is a figure in a sentence: queue_warm=3.
	pair = regexp.MustCompile(`(?:^|[\s,(\[])([A-Za-z_][\w/.\-]*)=(-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)`)
	// pairOf names the step of pairs on its line: fully-async rollout 3: target=8.
	pairOf = regexp.MustCompile(`\bfully-async rollout (\d+):`)
	// count is a figure of AReaL's executor.
	count = regexp.MustCompile(`\b(enqueued|running|accepted|rejected): (\d+)[,.]`)
	// bullet is a line of a list: • Avg Trajectory Age: 1.25 steps.
	bullet = regexp.MustCompile(`^\s*[•*-] ([A-Za-z][\w/ .\-]*): (-?(?:\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|nan|inf))\s*(?:s|ms|%|steps?|tokens?)?\s*(?:\([^)]*\))?$`)
)

// readText finds what a line says: a step that begins or ends, and figures. Named is whether the figures
// are of the step that the line names.
func readText(text string) (s says, values map[string]float64, named bool) {
	values = map[string]float64{}
	for _, m := range markers {
		if !strings.Contains(text, m.has) {
			continue
		}
		if found := m.form.FindStringSubmatch(text); found != nil {
			n, err := strconv.ParseInt(found[1], 10, 64)
			if err == nil {
				s = says{n - m.less, !m.ends, m.ends}
			}
		}
	}
	if n, ok := verlLine(text, values); ok {
		return says{number: n}, values, true
	}
	if strings.Contains(text, "│") {
		tableLine(text, values)
		return s, values, false
	}
	if open := strings.IndexByte(text, '{'); open >= 0 {
		before := strings.TrimRight(text[:open], " ")
		if !strings.HasSuffix(before, "[") && readDictionary(text[open:], values) {
			if found := numbered.FindStringSubmatch(before); found != nil {
				n, err := strconv.ParseInt(found[1], 10, 64)
				return says{number: n}, values, err == nil
			}
			return s, values, false
		}
		return s, map[string]float64{}, false
	}
	if found := bulletOf(text); found != nil {
		put(values, strings.ReplaceAll(strings.ToLower(found[1]), " ", "_"), found[2])
		return s, values, false
	}
	if strings.Contains(text, "running: ") {
		for _, found := range count.FindAllStringSubmatch(text, -1) {
			put(values, found[1], found[2])
		}
	}
	found := pairOf.FindStringSubmatch(text)
	if found != nil || s.begins || s.ends {
		pairs(text, values)
	}
	if found != nil {
		n, err := strconv.ParseInt(found[1], 10, 64)
		return says{number: n}, values, err == nil
	}
	return s, values, false
}

// queueSize is what OpenRLHF says of its queue when it starts.
var queueSize = regexp.MustCompile(`\] (queue_size)=(\d+)$`)

// pairs takes a sentence's figures. Only sentences that are known to be of the loop have theirs taken: a console is
// full of others.
func pairs(text string, values map[string]float64) {
	for _, at := range pair.FindAllStringSubmatchIndex(text, -1) {
		if at[5] == len(text) || strings.IndexByte(" \t,;)]s%", text[at[5]]) >= 0 { // a=1.2.3 is no number
			put(values, text[at[2]:at[3]], text[at[4]:at[5]])
		}
	}
}

// bulletOf returns the name and the figure of a line of a list, after the whole.
func bulletOf(text string) []string {
	start := strings.TrimLeft(text, " \t")
	if !strings.HasPrefix(start, "• ") && !strings.HasPrefix(start, "* ") && !strings.HasPrefix(start, "- ") {
		return nil
	}
	return bullet.FindStringSubmatch(text)
}

func put(values map[string]float64, key, text string) {
	if value, err := strconv.ParseFloat(unwrapped(text), 64); err == nil {
		values[key] = value
	}
}

// unwrapped is the number within np.float64(0.5) or tensor(0.5, device='cuda:0').
func unwrapped(text string) string {
	text = strings.TrimSpace(text)
	open := strings.IndexByte(text, '(')
	if open <= 0 || !strings.HasSuffix(text, ")") {
		return text
	}
	switch name := text[:open]; {
	case strings.HasPrefix(name, "np."), strings.HasPrefix(name, "numpy."), name == "tensor":
		inside, _, _ := strings.Cut(text[open+1:len(text)-1], ",")
		return inside
	}
	return text
}

// verlLine reads step:3 - key:value - key:value.
func verlLine(text string, values map[string]float64) (int64, bool) {
	i := strings.Index(text, "step:")
	if i < 0 || i > 0 && text[i-1] != ' ' {
		return 0, false
	}
	parts := strings.Split(text[i:], " - ")
	step, err := strconv.ParseInt(strings.TrimPrefix(parts[0], "step:"), 10, 64)
	if err != nil || len(parts) < 2 {
		return 0, false
	}
	for _, part := range parts[1:] {
		if colon := strings.LastIndexByte(part, ':'); colon > 0 {
			put(values, part[:colon], part[colon+1:])
		}
	}
	return step, len(values) > 0
}

// tableLine reads a row of a drawn table: cells are keys and values in turn.
func tableLine(text string, values map[string]float64) {
	cells := strings.Split(text, "│")
	for i := 1; i+1 < len(cells); i += 2 {
		key := strings.TrimSpace(cells[i])
		if key != "" && i+1 < len(cells) {
			put(values, key, cells[i+1])
		}
	}
}

// stamps are forms of a clock at the beginning of a line.
var stamps = []struct {
	form   *regexp.Regexp
	layout string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d`), "2006-01-02 15:04:05"},
	{regexp.MustCompile(`\d{8}-\d\d:\d\d:\d\d`), "20060102-15:04:05"},
	{regexp.MustCompile(`\d\d/\d\d/\d{4} \d\d:\d\d:\d\d`), "01/02/2006 15:04:05"},
	{regexp.MustCompile(`\d\d-\d\d \d\d:\d\d:\d\d`), "01-02 15:04:05"},
}

// stampWithin is how far into a line its clock may begin.
const stampWithin = 80

var fraction = regexp.MustCompile(`^[.,]\d{1,9}`)

// stampOf returns a line's time in seconds, of whatever zone it is, 0 if it has none.
func stampOf(text string) float64 {
	head := text[:min(len(text), stampWithin)]
	if strings.Count(head, ":") < 2 {
		return 0
	}
	for _, s := range stamps {
		at := s.form.FindStringIndex(head)
		if at == nil {
			continue
		}
		when, err := time.Parse(s.layout, strings.Replace(head[at[0]:at[1]], "T", " ", 1))
		if err != nil {
			continue
		}
		if when.Year() == 0 { // the line has no year
			when = when.AddDate(1972, 0, 0)
		}
		seconds := float64(when.Unix())
		if part := fraction.FindString(head[at[1]:]); part != "" {
			f, err := strconv.ParseFloat("0."+part[1:], 64)
			if err == nil {
				seconds += f
			}
		}
		return seconds
	}
	return 0
}
