package pool

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"runtime"
	"time"

	"github.com/headway-rl/headway/env/sandbox"
)

// Reuse says what becomes of a box that is given back.
type Reuse string

// Reuse policies.
const (
	// Never ends every box with its lease.
	Never Reuse = "never"
	// Reset makes a box as if it were new and hands it out again, up to Options.Uses times. A box ends whose driver
	// cannot reset it, or whose reset fails.
	Reset Reuse = "reset"
)

// Options of a pool. Zero values stand for the defaults that are named.
type Options struct {
	Driver sandbox.Driver
	Spec   sandbox.Spec
	// Owner begins the name of every box. It is the run's own, so that boxes that a crash left behind are found.
	// Letters, digits and '-', at most 32 of them, beginning with a letter. Two pools at once with one owner would
	// remove each other's boxes.
	Owner string
	// Earlier is a name that Owner had in an earlier release, empty for none: boxes of File may have it.
	Earlier string
	// File is where the boxes that are open are written down, with their leases, so that the next
	// process knows them; empty for none.
	File string
	// Max is the number of boxes there may be at once, 0 for no limit: further leases wait, first come,
	// first served. Starting bounds those that start at once, and those that end; default 4 for every
	// processor.
	Max, Starting int
	// WarmMin and WarmMax bound how many boxes stand ready. Between the two it is the number asked for within the time
	// that a start takes, by Little's law. Twice the root of that is added for chance. 0 and 0 keep none.
	WarmMin, WarmMax int
	Reuse            Reuse // default Never
	Uses             int   // of one box under Reset; default 100
	// StartTimeout is the longest a lease waits once there is room for its box. It covers other starts, its own and
	// those that are tried again. The wait for room is not in it, except for the room of boxes that do not end.
	// Default 30 s.
	StartTimeout time.Duration
	// Retries of a start that failed. Default 2; a negative number is none. Where the backend has no room
	// (class Quota) it is asked until StartTimeout.
	Retries int
	// BreakAfter so many starts in a row that failed, none is tried for BreakFor. Leases fail at once with class
	// BackendDown, and then one start is tried alone. Defaults 8 and 5 s.
	BreakAfter int
	BreakFor   time.Duration
	// Rand draws what is added to the waits between tries, from [0, 1). Default a generator of the
	// pool's own.
	Rand func() float64
	// Logf takes what an operator should know, from several goroutines. It must not call the pool. It may be nil.
	Logf func(format string, args ...any)
}

// owners are names that may begin a box's.
var owners = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9-]{0,31}$`)

// withDefaults fills in what is 0.
func (o Options) withDefaults() Options {
	orDefault(&o.Starting, 4*runtime.GOMAXPROCS(0))
	orDefault(&o.Reuse, Never)
	orDefault(&o.Uses, 100)
	orDefault(&o.StartTimeout, 30*time.Second)
	orDefault(&o.Retries, 2)
	orDefault(&o.BreakAfter, 8)
	orDefault(&o.BreakFor, 5*time.Second)
	if o.Rand == nil {
		o.Rand = rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0)).Float64
	}
	if o.Logf == nil {
		o.Logf = func(string, ...any) {}
	}
	o.WarmMax = max(o.WarmMax, o.WarmMin)
	return o
}

func orDefault[T comparable](v *T, otherwise T) {
	if *v == *new(T) {
		*v = otherwise
	}
}

// validate names all that no pool can be made of.
func (o Options) validate() error {
	var wrong []error
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			wrong = append(wrong, fmt.Errorf("sandbox pool: "+format, args...))
		}
	}
	refuse(o.Driver == nil, "there is no driver: name one that makes the boxes")
	refuse(!owners.MatchString(o.Owner), "owner %q: expected 1 to 32 letters, digits and '-', beginning with a letter", o.Owner)
	refuse(o.Max < 0, "max %d: expected 0 for no limit, or how many boxes there may be", o.Max)
	refuse(o.Starting < 0, "starting %d: expected how many boxes may start at once", o.Starting)
	refuse(o.WarmMin < 0 || o.WarmMax < 0, "warm boxes %d to %d: expected numbers from 0", o.WarmMin, o.WarmMax)
	refuse(o.WarmMax > 0 && o.WarmMin > o.WarmMax, "at least %d warm boxes, and at most %d: expected the first to be no larger", o.WarmMin, o.WarmMax)
	refuse(o.Max > 0 && max(o.WarmMin, o.WarmMax) > o.Max, "%d warm boxes of at most %d boxes: raise max, or have fewer warm", max(o.WarmMin, o.WarmMax), o.Max)
	refuse(o.Reuse != "" && o.Reuse != Never && o.Reuse != Reset, "reuse %q: expected %q or %q", o.Reuse, Never, Reset)
	refuse(o.Uses < 0, "uses %d: expected how often a box is handed out", o.Uses)
	refuse(o.StartTimeout < 0 || o.BreakFor < 0, "start timeout %v, break of %v: expected no negative time", o.StartTimeout, o.BreakFor)
	refuse(o.BreakAfter < 0, "break after %d: expected how many failed starts in a row", o.BreakAfter)
	return errors.Join(wrong...)
}
