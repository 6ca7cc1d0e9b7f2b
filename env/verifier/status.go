package verifier

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/headway-rl/headway/env/sandbox"
)

// Status is what a Bounded says of itself. It is made of copies.
type Status struct {
	Kind string
	// Waiting cases, and those that are being judged, which those are among that were given up but
	// whose verifier has not returned.
	Waiting, Running int
	// Verdicts given, retries made, and cases that the caller gave up.
	Verdicts, Retries, GivenUp int64
	// Failures by class; Limits of the sandbox that code met while it was judged.
	Failures, Limits map[sandbox.Class]int64
	// WaitS and VerdictS are quantiles of the last cases' times in seconds: 50 %, 90 %, 99 %; all 0 while
	// there were none. WaitTotal and VerdictTotal are the sums since the start.
	WaitS, VerdictS         [3]float64
	WaitTotal, VerdictTotal time.Duration
}

// tell counts how a case ended.
func (s *Status) tell(ctx context.Context, v Verdict, err error) {
	switch {
	case err == nil:
		s.Verdicts++
		if v.Limit != "" {
			s.Limits[v.Limit]++
		}
	case ctx.Err() != nil:
		s.GivenUp++
	default:
		s.Failures[sandbox.ClassOf(err)]++
	}
}

// Status tells what the verifier does and has done.
func (j *Bounded) Status() Status {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := j.status
	s.Failures, s.Limits = maps.Clone(s.Failures), maps.Clone(s.Limits)
	s.WaitS, s.WaitTotal = j.waits.quantiles(), j.waits.total
	s.VerdictS, s.VerdictTotal = j.judged.quantiles(), j.judged.total
	return s
}

func (j *Bounded) count(change func(*Status)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	change(&j.status)
}

// durations are the last 1024 of many, and the sum of all.
type durations struct {
	last  []time.Duration
	next  int
	total time.Duration
}

func (d *durations) add(t time.Duration) {
	d.total += t
	if len(d.last) < 1024 {
		d.last = append(d.last, t)
		return
	}
	d.last[d.next] = t
	d.next = (d.next + 1) % len(d.last)
}

func (d *durations) quantiles() (q [3]float64) {
	if len(d.last) == 0 {
		return q
	}
	sorted := slices.Sorted(slices.Values(d.last))
	for i, p := range []int{50, 90, 99} {
		q[i] = sorted[min(len(sorted)*p/100, len(sorted)-1)].Seconds()
	}
	return q
}
