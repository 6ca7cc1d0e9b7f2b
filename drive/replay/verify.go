package replay

import (
	"fmt"
	"io"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
)

// Report is what a replay found.
type Report struct {
	// Header of the trace.
	Header trace.Header `json:"-"`
	// Events stepped through, Actions that were compared and are the same.
	Events  int64 `json:"events"`
	Actions int64 `json:"actions"`
	// Recoveries counts events "recovered", Missing the actions before them that the
	// process did not live to record.
	Recoveries int64 `json:"recoveries"`
	Missing    int64 `json:"missing_before_recovery"`
	// Difference is the first one, nil if the trace is reproduced.
	Difference *trace.Difference `json:"difference"`
	// Version, Ledger and EndNS at the end, in versions, rollouts and nanoseconds since the start.
	Version loop.Version `json:"version"`
	Ledger  loop.Ledger  `json:"ledger"`
	EndNS   int64        `json:"end_ns"`
}

// Verify takes a trace through the loop and compares every recorded action with
// the loop's decision. It stops at the first difference, which is in the report.
// The error is a *trace.Error for a trace that cannot be read or has been changed.
// It wraps ErrIncomplete for a trace that stops before its end; the report then
// says how far it went.
func Verify(r io.Reader) (Report, error) {
	p, err := newPlayer(r)
	if err != nil {
		return Report{}, err
	}
	err = p.Play()
	t := p.Tally()
	report := Report{Header: p.header, Events: t.Events, Actions: t.Actions, Recoveries: t.Recoveries, Missing: t.Missing, Difference: t.Difference,
		Version: p.loop.Version(), Ledger: p.loop.Ledger(), EndNS: p.loop.Status().TimeNS}
	if err != nil {
		return report, err
	}
	if t.Difference == nil && !t.Ended {
		return report, fmt.Errorf("%w after line %d (event %d): the run was interrupted, resume it to its end; or the file was cut short",
			ErrIncomplete, p.Line(), t.Events)
	}
	return report, nil
}
