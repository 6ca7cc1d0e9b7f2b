package env

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/headway-rl/headway/internal/spelling"
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
	o.LettersMin = cmp.Or(o.LettersMin, DefaultLettersMin)
	o.LettersMax = cmp.Or(o.LettersMax, DefaultLettersMax)
	o.Growth = max(o.Growth, 1)
	return o
}

// makers make tasks from options, with an error for options they cannot have.
var makers = map[string]func(Options) (ScoredTask, error){
	"reverse":  func(o Options) (ScoredTask, error) { return newWordTask("reverse", o, slices.Reverse[[]int32]) },
	"addition": newAddition,
	"sort":     func(o Options) (ScoredTask, error) { return newWordTask("sort", o, slices.Sort[[]int32]) },
}

// Names lists the tasks in order.
func Names() []string {
	return slices.Sorted(maps.Keys(makers))
}

// New makes the task of that name. An unknown name is an error that says which
// there are and which is nearest.
func New(name string, o Options) (ScoredTask, error) {
	if make, ok := makers[name]; ok {
		return make(o.withDefaults())
	}
	nearest := slices.MinFunc(Names(), func(a, b string) int { return spelling.Distance(name, a) - spelling.Distance(name, b) })
	return nil, fmt.Errorf("env: no task %q; there are %s; did you mean %q?", name, strings.Join(Names(), ", "), nearest)
}
