package soak

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/headway-rl/headway/cmd/lab/world/program"
)

// Soak runs seeds and keeps count of them.
type Soak struct {
	// Run runs the world of a seed.
	Run func(ctx context.Context, seed uint64) (program.Result, error)
	// Seeds are those to run. Those of the ledger are passed over.
	Seeds Ranges
	// Jobs is how many run side by side.
	Jobs int
	// For is the time after which no further seed begins; 0 for no end.
	For time.Duration
	// FailuresMax is the number of failures after which no further seed begins.
	FailuresMax int
	// Ledger keeps count, in the file Path; "" for in memory alone.
	Ledger *Ledger
	Path   string
	// Folder keeps the plans that fail.
	Folder string
	// Now is the clock.
	Now func() time.Time
	// Progress is called after every seed, by one goroutine at a time; nil for never.
	Progress func(Progress)
}

// Progress is how far the seeds are.
type Progress struct {
	// Totals are the ledger's, and Wanted the number of seeds in all.
	Totals *Totals
	Wanted int64
	// Ran seeds of this process, in Took, Counted of which count.
	Ran, Counted int64
	Took         time.Duration
	// Left is how long the others are going to take.
	Left time.Duration
}

// writeEvery is how much time passes between two writes of the ledger: what ran since the last one is run again after
// a crash.
const writeEvery = 2 * time.Second

// Start runs the seeds. The ledger is up to date when it returns, whether with an error or without.
func (s Soak) Start(ctx context.Context) error {
	began := s.Now()
	written, before := began, s.Ledger.Totals
	var trouble error
	took := func(seed uint64, r program.Result) bool {
		script := ""
		if r.Rule != "" {
			script, trouble = Keep(s.Folder, fmt.Sprintf("seed-%d", seed), r)
		}
		s.Ledger.Add(seed, r, script)
		now := s.Now()
		s.Ledger.Totals.WallS = before.WallS + now.Sub(began).Seconds()
		if trouble == nil && (r.Rule != "" || now.Sub(written) >= writeEvery) {
			written, trouble = now, s.write()
		}
		s.report(before, now.Sub(began))
		return trouble == nil && len(s.Ledger.Failures) < s.FailuresMax && (s.For == 0 || now.Sub(began) < s.For)
	}
	err := Each(ctx, s.Seeds.Without(slices.Clone(s.Ledger.Done)), s.Jobs, s.Run, took) // the ledger changes under way
	if trouble != nil {
		return trouble
	}
	if trouble = s.write(); trouble != nil {
		return trouble
	}
	return err
}

func (s Soak) write() error {
	if s.Path == "" {
		return nil
	}
	if err := s.Ledger.Write(s.Path); err != nil {
		return fmt.Errorf("the ledger: %w", err)
	}
	return nil
}

func (s Soak) report(before Totals, took time.Duration) {
	if s.Progress == nil {
		return
	}
	t := &s.Ledger.Totals
	p := Progress{Totals: t, Wanted: s.Seeds.Len(), Ran: t.Seeds - before.Seeds, Counted: t.Counting - before.Counting, Took: took}
	left := s.Seeds.Left(s.Ledger.Done)
	p.Left = time.Duration(float64(took) / float64(p.Ran) * float64(left))
	if s.For > 0 {
		p.Left = min(p.Left, s.For-took)
	}
	s.Progress(p)
}
