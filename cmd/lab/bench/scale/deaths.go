package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
)

// settle is how long a run plays before a process dies, and after all are back.
const settle = 20 * time.Second

// deaths has rollouts play at four cells while something dies, and prints what that cost.
func deaths(program string, live, servers int, tokens float64, what string, dies func(*run) error) error {
	r, err := begin(program, 4, live, servers)
	defer r.end()
	if err != nil {
		return err
	}
	perStream := tokens / float64(live)
	if err := r.open(live, max(int(rolloutS*perStream), 2), time.Duration(float64(time.Second)/perStream), 2*time.Minute); err != nil {
		return err
	}
	time.Sleep(settle)
	before, began := r.counts(), time.Now()
	if err := dies(r); err != nil {
		return err
	}
	back := time.Now()
	time.Sleep(settle)
	after := r.counts()
	fmt.Printf("\n%d rollouts at 4 cells, %g tokens/s of all: %s\n", live, tokens, what)
	fmt.Printf("  away                         %8.1f s\n", back.Sub(began).Seconds())
	fmt.Printf("  longest time without a claim %8.1f s\n", longestGap(after.Claims, began.UnixMilli(), time.Now().UnixMilli()))
	fmt.Printf("  rollouts that ended          %8d\n", after.Rollouts-before.Rollouts)
	fmt.Printf("  tokens sampled meanwhile     %8d\n", after.Tokens-before.Tokens)
	fmt.Printf("  streams cut                  %8d with %d tokens\n", after.Cut-before.Cut, after.CutTokens-before.CutTokens)
	fmt.Printf("  rollouts that do not count   %8d, and %d that nobody knew\n", after.Uncounted-before.Uncounted, after.Gone-before.Gone)
	lines, err := r.log()
	if err != nil {
		return err
	}
	fmt.Printf("  attempts that failed         %8d\n", lines.failed)
	fmt.Printf("  engines that loaded again    %8d\n", lines.loads-len(r.cells))
	return nil
}

// longestGap is the longest time between two claims, in seconds, from began to ended in Unix milliseconds.
func longestGap(claims []int64, began, ended int64) float64 {
	slices.Sort(claims)
	last, longest := began, int64(0)
	for _, at := range append(claims, ended) {
		if at >= began {
			longest, last = max(longest, at-last), at
		}
	}
	return float64(longest) / 1000
}

// lines are what a log has: rollouts that failed, and loads of engines, of which each needs one.
type lines struct{ failed, loads int }

// log ends the control plane and reads the run's log.
func (r *run) log() (l lines, err error) {
	r.plane.Stop()
	file, err := trace.Open(filepath.Join(r.dir, "bench"))
	if err != nil {
		return l, err
	}
	defer file.Close()
	reader, err := trace.NewReader(file)
	if err != nil {
		return l, err
	}
	for {
		rec, err := reader.Next()
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF): // it was killed
			return l, nil
		case err != nil:
			return l, err
		case rec.Event != nil && rec.Event.Kind == loop.RolloutFailed:
			l.failed++
		case rec.Action != nil && rec.Action.Kind == loop.LoadWeights:
			l.loads++
		}
	}
}

// planeDies kills the control plane, and starts it at once.
func (r *run) planeDies() error {
	r.plane.Stop()
	return r.startPlane()
}

// cellDies kills a cell, and starts it at once.
func (r *run) cellDies() error {
	r.cells[0].kill()
	return r.startCell(r.cells[0])
}

// serversAway has two of three NATS servers be away.
func (r *run) serversAway(outage time.Duration) error {
	for i := range 2 {
		r.servers[i].Shutdown()
		r.servers[i].WaitForShutdown()
	}
	time.Sleep(outage)
	for i := range 2 {
		if err := r.startServer(i); err != nil {
			return err
		}
	}
	for _, s := range r.servers {
		if !s.ReadyForConnections(time.Minute) {
			return errors.New("a NATS server does not come back")
		}
	}
	return nil
}
