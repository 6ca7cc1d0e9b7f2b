package env

import (
	"fmt"
	"slices"
	"strings"

	"github.com/headway-rl/headway/spelling"
)

// Options are the parts of a task that a config may set. A task ignores those
// that do not concern it.
type Options struct {
	// LettersMin and LettersMax bound the words of reverse and sort; 0 means
	// DefaultLettersMin and DefaultLettersMax.
	LettersMin, LettersMax int
	// Growth is the largest factor by which a [Grower]'s answers will grow; 0 means 1.
	Growth float64
}

// Defaults of Options.
const (
	DefaultLettersMin = 2
	DefaultLettersMax = 5
)

func (o Options) withDefaults() Options {
	if o.LettersMin == 0 {
		o.LettersMin = DefaultLettersMin
	}
	if o.LettersMax == 0 {
		o.LettersMax = DefaultLettersMax
	}
	o.Growth = max(o.Growth, 1)
	return o
}

// Maker makes a task from options, with an error for options it cannot have.
type Maker func(Options) (Task, error)

var makers = map[string]Maker{
	"reverse":  func(o Options) (Task, error) { return newWords("reverse", o, slices.Reverse[[]int32]) },
	"addition": newAddition,
	"sort":     func(o Options) (Task, error) { return newWords("sort", o, slices.Sort[[]int32]) },
}

// Register adds a task under a name. Call it from an init function; a name
// that is taken panics.
func Register(name string, make Maker) {
	if _, taken := makers[name]; taken {
		panic(fmt.Sprintf("env: task %q is registered twice", name))
	}
	makers[name] = make
}

// Names lists the registered tasks in order.
func Names() []string {
	names := make([]string, 0, len(makers))
	for name := range makers {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// New makes the task of that name. An unknown name is an error that says which
// there are and which is nearest.
func New(name string, o Options) (Task, error) {
	if make, ok := makers[name]; ok {
		return make(o.withDefaults())
	}
	nearest := slices.MinFunc(Names(), func(a, b string) int { return spelling.Distance(name, a) - spelling.Distance(name, b) })
	return nil, fmt.Errorf("env: no task %q; there are %s; did you mean %q?", name, strings.Join(Names(), ", "), nearest)
}
