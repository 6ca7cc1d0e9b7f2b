package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/headway-rl/headway/cmd/lab/bench/plane"
)

// rolloutS is how long a rollout lasts in the mean, in seconds. Where numbers of cells are compared they are shorter, so that there
// are enough of them. Of many open streams they are longer, as each has few tokens.
const (
	longS    = 120.0
	rolloutS = 20.0
	shortS   = 5.0
)

// header names the columns. The control plane's time is that beyond what it takes without rollouts.
func header() {
	fmt.Printf("%6s %8s %10s %12s %14s %14s %16s %14s %8s\n", "cells", "streams", "tokens/s", "µs a token", "plane µs", "plane bytes", "kB a live", "p99 ms", "refused")
	fmt.Printf("%6s %8s %10s %12s %14s %14s %16s %14s %8s\n", "", "open", "", "in cells", "a rollout", "a rollout", "rollout, cells", "of a token", "calls")
}

// used is what processes have used so far.
type used struct {
	cells, plane float64 // seconds of processor time
	bytes        int64   // read and written by the control plane
	at           time.Time
	count        count
}

func (r *run) used() (u used, err error) {
	for _, c := range r.cells {
		s, err := plane.ProcessorTime(c.cmd.Process.Pid)
		if err != nil {
			return u, err
		}
		u.cells += s
	}
	if u.plane, err = plane.ProcessorTime(r.plane.PID); err != nil {
		return u, err
	}
	for _, name := range []string{"rchar", "wchar"} {
		n, err := field(fmt.Sprintf("/proc/%d/io", r.plane.PID), name)
		if err != nil {
			return u, err
		}
		u.bytes += n
	}
	u.at, u.count = time.Now(), r.counts()
	return u, nil
}

// field is a number in a file of the kernel's with a name a line.
func field(path, name string) (int64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, found := strings.CutPrefix(line, name+":"); found {
			return strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
		}
	}
	return 0, fmt.Errorf("%s has no %s", path, name)
}

// resident is how much memory the cells' processes have together, in kB.
func (r *run) resident() (sum int64, err error) {
	for _, c := range r.cells {
		n, err := field(fmt.Sprintf("/proc/%d/status", c.cmd.Process.Pid), "VmRSS")
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// load measures so many streams over cells, and prints a line.
func load(program string, cells, streams int, perStream, lasts float64, window time.Duration) error {
	r, err := begin(program, cells, streams, 1)
	defer r.end()
	if err != nil {
		return err
	}
	idle, err := r.resident()
	if err != nil {
		return err
	}
	first, err := r.used()
	if err != nil {
		return err
	}
	time.Sleep(window / 2)
	still, err := r.used()
	if err != nil {
		return err
	}
	own := (still.plane - first.plane) / still.at.Sub(first.at).Seconds()
	pause := time.Duration(float64(time.Second) / perStream)
	if err := r.open(streams, max(int(lasts*perStream), 2), pause, 3*time.Minute); err != nil {
		return err
	}
	time.Sleep(time.Duration(lasts * float64(time.Second))) // ends come evenly from here on
	before, err := r.used()
	if err != nil {
		return err
	}
	time.Sleep(window)
	after, err := r.used()
	if err != nil {
		return err
	}
	busy, err := r.resident()
	if err != nil {
		return err
	}
	tokens, rollouts := float64(after.count.Tokens-before.count.Tokens), float64(max(after.count.Rollouts-before.count.Rollouts, 1))
	fmt.Printf("%6d %8d %10.0f %12.1f %14.0f %14.0f %16.0f %14.1f %8d\n", cells, after.count.Active, tokens/after.at.Sub(before.at).Seconds(), 1e6*(after.cells-before.cells)/tokens,
		1e6*(after.plane-before.plane-own*after.at.Sub(before.at).Seconds())/rollouts, float64(after.bytes-before.bytes)/rollouts, float64(busy-idle)/float64(streams), after.count.P99, after.count.Refused)
	return nil
}
