package pool

import (
	"time"

	"github.com/headway-rl/headway/sandbox"
)

// Reuse says what becomes of a box that is given back.
type Reuse string

// Reuse policies.
const (
	// Never ends every box with its lease.
	Never Reuse = "never"
	// Reset makes a box as if it were new and hands it out again, up to Options.Uses times; one whose
	// driver cannot, or whose reset fails, ends.
	Reset Reuse = "reset"
)

// Options of a pool. Zero values stand for the defaults that are named.
type Options struct {
	Driver sandbox.Driver
	Spec   sandbox.Spec
	// Owner begins the name of every box: the run's own, so that what a crash left behind is found.
	Owner string
	// File is where the boxes that are open are written down, with their leases, so that the next
	// process knows them; empty for none.
	File string
	// Max is the number of boxes there may be at once, 0 for no limit: further leases wait. Starting
	// bounds those that start at once; default 4 for every processor.
	Max, Starting int
	// WarmMin and WarmMax bound how many boxes stand ready. Between the two it is what was asked for
	// within the time that a start takes, by Little's law. 0 and 0 keep none.
	WarmMin, WarmMax int
	Reuse            Reuse // default Never
	Uses             int   // of one box under Reset; default 100
	// StartTimeout is the longest a start may take, its wait for others included. Default 30 s.
	StartTimeout time.Duration
	// Retries of a start that failed. Default 2; a negative number is none.
	Retries int
	// BreakAfter so many starts in a row that failed, no lease is tried for BreakFor: they fail at
	// once with class BackendDown, and then one is tried alone. Defaults 8 and 5 s.
	BreakAfter int
	BreakFor   time.Duration
	// Clock is the time; default time.Now.
	Clock func() time.Time
	// Logf takes what an operator should know. It may be nil.
	Logf func(format string, args ...any)
}

// Status is what a pool says of itself. It is made of copies.
type Status struct {
	Driver   string
	Boundary sandbox.Boundary
	// Boxes that are leased, stand ready, start or end; leases that wait for one.
	Leased, Warm, Starting, Ending, Waiting int
	// WarmWanted is how many are to stand ready by the demand measured.
	WarmWanted int
	// Created and Reused count boxes handed out; Hits those of them that stood ready.
	Created, Reused, Hits int64
	// Failures by class, of starts and of commands; Limits the limits that commands met.
	Failures, Limits map[sandbox.Class]int64
	// Orphans were left by an earlier process and have been removed.
	Orphans int64
	// Broken: the breaker is open.
	Broken bool
	// StartS and WaitS are quantiles of the time that starts and leases took, in seconds: 50 %, 90 %,
	// 99 %; all 0 while there were none.
	StartS, WaitS [3]float64
}
