package foreign

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/headway-rl/headway/internal/spelling"
)

// family is a name that stands for several frameworks: which of them it is shows in the keys.
type family struct {
	name    string
	members func() []*Framework
	// tracker is whether it names who kept the log, and not who ran: it rules no framework out.
	tracker bool
}

// families of frameworks.
var families = []family{
	{name: "verl", members: func() []*Framework { return []*Framework{verlFullyAsync, verlV1, verlSync} }},
	{name: trackerWandb, members: func() []*Framework { return frameworks }, tracker: true},
}

// trackerWandb is W&B, as --from names it.
const trackerWandb = "wandb"

// Names returns the frameworks' names. --from takes them, their aliases, and the names of families.
func Names() []string {
	var names []string
	for _, f := range frameworks {
		names = append(names, f.Name)
	}
	return names
}

// namesTaken lists what --from takes, without the aliases.
func namesTaken() string {
	names := Names()
	for _, f := range families {
		names = append(names, f.name)
	}
	return strings.Join(names, ", ")
}

// named returns the frameworks that a name or an alias may mean, and whether it names a tracker.
func named(name string) (found []*Framework, tracker bool, err error) {
	var known []string
	for _, f := range frameworks {
		if strings.EqualFold(f.Name, name) || slices.ContainsFunc(f.Aliases, func(a string) bool { return strings.EqualFold(a, name) }) {
			return []*Framework{f}, false, nil
		}
		known = append(append(known, f.Name), f.Aliases...)
	}
	for _, f := range families {
		if strings.EqualFold(f.name, name) {
			return f.members(), f.tracker, nil
		}
		known = append(known, f.name)
	}
	hint := ""
	if near := spelling.Nearest(name, known); near != "" {
		hint = fmt.Sprintf(": did you mean %s?", near)
	}
	return nil, false, fmt.Errorf("no framework %q is known%s (known: %s)", name, hint, namesTaken())
}

// evidence is what was seen of each framework.
type evidence struct {
	among []*Framework          // those that it can be
	mode  string                // trainer_mode of verl's v1 trainer, "" where it is not said
	marks map[*Framework]string // the first marked key, by name, that was seen
	hints map[*Framework]map[string]bool
	seen  map[string]bool
}

func newEvidence() *evidence {
	return &evidence{among: frameworks, marks: map[*Framework]string{}, hints: map[*Framework]map[string]bool{}, seen: map[string]bool{}}
}

// keysSeenMax is how many different keys of a log are remembered.
const keysSeenMax = 1 << 14

// key notes a logged key.
func (e *evidence) key(key string) {
	if e.seen[key] || len(e.seen) >= keysSeenMax || len(key) > KeyMax {
		return
	}
	key = strings.Clone(key)
	e.seen[key] = true
	for _, f := range frameworks {
		e.note(f, f.Marks, key)
		if slices.ContainsFunc(f.Hints, func(hint string) bool { return fits(hint, key) }) {
			if e.hints[f] == nil {
				e.hints[f] = map[string]bool{}
			}
			e.hints[f][key] = true
		}
	}
}

// setting notes a key of the config with its value.
func (e *evidence) setting(key, value string) {
	if key == verlV1Mode {
		e.mode = strings.Clone(value)
	}
	for _, f := range frameworks {
		e.note(f, f.MarkSettings, key)
	}
}

func (e *evidence) note(f *Framework, marks []string, key string) {
	if before := e.marks[f]; before != "" && before <= key {
		return // the first by name is shown, as rows have no order of keys
	}
	if slices.ContainsFunc(marks, func(mark string) bool { return fits(mark, key) }) {
		e.marks[f] = key
	}
}

// marked returns the frameworks of which a marked key was seen, in the order of the list.
func (e *evidence) marked() []*Framework {
	var found []*Framework
	for _, f := range e.among {
		if e.marks[f] != "" {
			found = append(found, f)
		}
	}
	return found
}

// framework decides. It is an error if nothing is known, or keys of several are there.
func (e *evidence) framework() (*Framework, error) {
	switch found := e.marked(); len(found) {
	case 1:
		return found[0], nil
	case 0:
		return e.hinted()
	default:
		return nil, e.mixed(found)
	}
}

// mixed is the error of keys of several frameworks.
func (e *evidence) mixed(found []*Framework) error {
	var parts []string
	for _, f := range found {
		parts = append(parts, fmt.Sprintf("%s (%s)", f.Name, e.marks[f]))
	}
	return fmt.Errorf("the log has keys of %s: give one run's files alone, or say with --from which framework it is",
		strings.Join(parts, " and of "))
}

// hintsNeeded is how many shared keys make a framework, if no other has as many.
const hintsNeeded = 2

// hinted decides by the number of keys that a framework shares with others.
func (e *evidence) hinted() (*Framework, error) {
	var best *Framework
	tied := ""
	for _, f := range e.among {
		n := len(e.hints[f])
		switch {
		case n < hintsNeeded:
		case best == nil || n > len(e.hints[best]):
			best, tied = f, ""
		case n == len(e.hints[best]):
			tied = f.Name
		}
	}
	if best != nil && tied == "" {
		return best, nil
	}
	if e.synchronousVerl(best) {
		return verlSync, nil
	}
	if best != nil {
		return nil, fmt.Errorf("the log's keys fit %s and %s alike: say with --from which framework it is", best.Name, tied)
	}
	return nil, e.unknown()
}

// unknown is the error of a log of which no framework is known.
func (e *evidence) unknown() error {
	if len(e.seen) == 0 {
		return fmt.Errorf("nothing in these files is a logged number: they should hold a run's metrics (known frameworks: %s)",
			namesTaken())
	}
	keys := slices.Sorted(maps.Keys(e.seen))
	const shown = 8
	more := ""
	if len(keys) > shown {
		keys, more = keys[:shown], ", …"
	}
	return fmt.Errorf("no known framework logs these keys (%s%s): say with --from which it is (known: %s)",
		strings.Join(keys, ", "), more, namesTaken())
}
