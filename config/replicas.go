package config

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// replicasMax is the most engines that a document with a count or a range may have.
const replicasMax = 4096

// numberRange is a range of whole numbers in a text, as a shell writes it: {1..40}, or {01..40} with zeros.
var numberRange = regexp.MustCompile(`\{([0-9]{1,9})\.\.([0-9]{1,9})\}`)

// span is one range of a text.
type span struct{ first, count, width int }

// spansOf are the ranges of a text in its order, and the number of texts that they make together. The number is 0 where
// a range counts down, and above replicasMax where there are too many.
func spansOf(text string) (spans []span, texts int) {
	texts = 1
	for _, ends := range numberRange.FindAllStringSubmatch(text, -1) {
		first, _ := strconv.Atoi(ends[1]) // nine digits at most
		last, _ := strconv.Atoi(ends[2])
		s := span{first: first, count: max(last-first+1, 0)}
		if ends[1][0] == '0' || ends[2][0] == '0' {
			s.width = max(len(ends[1]), len(ends[2]))
		}
		spans = append(spans, s)
		texts = min(texts*min(s.count, replicasMax+1), replicasMax+1)
	}
	return spans, texts
}

// numbersAt are the numbers of ranges in their i-th combination, of which the last range is the fastest.
func numbersAt(spans []span, i int) []string {
	numbers := make([]string, len(spans))
	for k, s := range slices.Backward(spans) {
		numbers[k] = fmt.Sprintf("%0*d", s.width, s.first+i%s.count)
		i /= s.count
	}
	return numbers
}

// filled is a text with its i-th numbers in the place of its ranges.
func filled(text string, i int) string {
	spans, _ := spansOf(text)
	numbers := numbersAt(spans, i)
	return numberRange.ReplaceAllStringFunc(text, func(string) string {
		number := numbers[0]
		numbers = numbers[1:]
		return number
	})
}

// rangedText is a text of an engine that may have ranges.
type rangedText struct {
	key  string
	text *string
}

// rangedTexts are all of them, the address first.
func (e *Engine) rangedTexts() []rangedText {
	texts := []rangedText{{"url", &e.URL}, {"name", &e.Name}, {"cell", &e.Cell}, {"served_model", &e.ServedModel}, {"key_file", &e.KeyFile}, {"weights_dir", &e.WeightsDir}}
	for i := range e.Command {
		texts = append(texts, rangedText{"command", &e.Command[i]})
	}
	for i := range e.Convert {
		texts = append(texts, rangedText{"convert", &e.Convert[i]})
	}
	return texts
}

// replicaProblem is what is wrong with the count of an entry or with one of its ranges.
type replicaProblem struct{ key, value, problem, allowed string }

// replicas is the number of engines that an entry stands for, by its count or by the ranges of its texts.
func (e Engine) replicas() (n int, wrong *replicaProblem) {
	by := ""
	for _, t := range e.rangedTexts() {
		spans, texts := spansOf(*t.text)
		switch {
		case len(spans) == 0:
		case texts == 0:
			return 0, &replicaProblem{t.key, *t.text, "has a range that counts down", "the lower number first, such as {1..40}"}
		case texts > replicasMax:
			return 0, &replicaProblem{t.key, *t.text, fmt.Sprintf("stands for more than %d engines", replicasMax), "a shorter range"}
		case by != "" && texts != n:
			return 0, &replicaProblem{t.key, *t.text, fmt.Sprintf("stands for %s, and %s for %d", engineCount(texts), by, n), "ranges of as many numbers"}
		default:
			n, by = texts, t.key
		}
	}
	switch {
	case by == "":
		return max(e.Count, 1), nil
	case e.Count > 0 && e.Count != n:
		return 0, &replicaProblem{"count", strconv.Itoa(e.Count), fmt.Sprintf("is not the %s that the range of %s stands for", engineCount(n), by), fmt.Sprintf("%d, or leave it out", n)}
	}
	return n, nil
}

// engineCount is a number of engines in words.
func engineCount(n int) string {
	if n == 1 {
		return "1 engine"
	}
	return fmt.Sprintf("%d engines", n)
}

// replica is the k-th of the n engines that an entry stands for.
func (e Engine) replica(k, n int) Engine {
	if spans, _ := spansOf(e.Name); e.Name != "" && len(spans) == 0 && n > 1 {
		number := strconv.Itoa(k)
		if spans, _ := spansOf(e.URL); len(spans) > 0 {
			number = strings.Join(numbersAt(spans, k), "-")
		}
		e.Name += "-" + number
	}
	e.Count, e.Command, e.Convert = 0, slices.Clone(e.Command), slices.Clone(e.Convert)
	for _, t := range e.rangedTexts() {
		*t.text = filled(*t.text, k)
	}
	return e
}

// ranged reports whether an entry says for how many engines it stands.
func (e Engine) ranged() bool {
	return e.Count > 0 || slices.ContainsFunc(e.rangedTexts(), func(t rangedText) bool { return numberRange.MatchString(*t.text) })
}

// replicateEngines puts the engines that entries stand for in the entries' place. Every reader of a resolved document sees
// engines alone. Entries stay as they are where one is wrong, which Validate says.
func (c *Config) replicateEngines() {
	if !slices.ContainsFunc(c.Engines, Engine.ranged) || c.replicaProblem(func(int, replicaProblem) {}) {
		return
	}
	var all []Engine
	var entries []int
	for i, e := range c.Engines {
		n, _ := e.replicas()
		for k := range n {
			all, entries = append(all, e.replica(k, n)), append(entries, i)
		}
	}
	c.Engines = all
	c.origin.replicate(entries)
}

// replicaProblem reports whether an entry cannot stand for engines. It tells each problem with the entry's index.
func (c Config) replicaProblem(tell func(entry int, wrong replicaProblem)) (found bool) {
	total := 0
	for i, e := range c.Engines {
		n, wrong := e.replicas()
		if total += n; wrong == nil && e.ranged() && total > replicasMax {
			wrong = &replicaProblem{key: "count", problem: fmt.Sprintf("makes %d engines with the entries before", total), allowed: fmt.Sprintf("at most %d", replicasMax)}
		}
		if wrong != nil {
			tell(i, *wrong)
			found = true
		}
	}
	return found
}

// replicas refuses entries that cannot stand for engines.
func (v *validator) replicas() {
	v.config.replicaProblem(func(entry int, wrong replicaProblem) {
		key := fmt.Sprintf("engines.%d.%s", entry, wrong.key)
		if v.refused(key) {
			return // its value is wrong by itself
		}
		v.errs = append(v.errs, v.config.problem(key, wrong.value, wrong.problem, wrong.allowed))
	})
}

// refused reports whether an error names a key already.
func (v *validator) refused(key string) bool {
	return slices.ContainsFunc(v.errs, func(err *Error) bool { return err.Key == key })
}

// replicate gives every engine the places of its entry, whose index entries holds.
func (o *origin) replicate(entries []int) {
	of := map[string]map[string]place{}
	for path, at := range o.places {
		if within, is := strings.CutPrefix(path, "engines."); is {
			index, key, _ := strings.Cut(within, ".")
			if of[index] == nil {
				of[index] = map[string]place{}
			}
			of[index][key] = at
			delete(o.places, path)
		}
	}
	for k, entry := range entries {
		index := strconv.Itoa(entry)
		path := "engines." + strconv.Itoa(k)
		for key, at := range of[index] {
			if key != "count" {
				o.places[strings.TrimSuffix(join(path, key), ".")] = at
			}
		}
		at, given := of[index][""]
		if !given {
			at = place{file: o.name}
		}
		at.entry = "engines." + index
		o.places[path] = at
	}
}

// entryOf is the path of the entry that stands for a key's engine by a count or a range, else "".
func (o *origin) entryOf(path string) string {
	within, is := strings.CutPrefix(path, "engines.")
	if !is || o == nil {
		return ""
	}
	index, _, _ := strings.Cut(within, ".")
	return o.places["engines."+index].entry
}

// asWritten is the path of a key in the document: that of the entry that stands for its engine.
func (o *origin) asWritten(path string) string {
	entry := o.entryOf(path)
	if entry == "" {
		return path
	}
	_, key, _ := strings.Cut(strings.TrimPrefix(path, "engines."), ".")
	return strings.TrimSuffix(join(entry, key), ".")
}

// sameEntry reports whether one entry stands for two engines.
func (o *origin) sameEntry(a, b int) bool {
	entry := o.entryOf(fmt.Sprintf("engines.%d", a))
	return entry != "" && entry == o.entryOf(fmt.Sprintf("engines.%d", b))
}

// onceAnEntry leaves the first of the errors about one key of an entry that stands for several engines.
func (e Errors) onceAnEntry() Errors {
	seen := map[string]bool{}
	return slices.DeleteFunc(e, func(err *Error) bool {
		twice := seen[err.Key] && err.replicated
		seen[err.Key] = true
		return twice
	})
}
