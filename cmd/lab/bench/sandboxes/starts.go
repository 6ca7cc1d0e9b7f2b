//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/sandbox/pool"
)

// box makes one with a name of its own.
func box(ctx context.Context, driver sandbox.Driver, name string) (sandbox.Box, time.Duration, error) {
	began := time.Now()
	b, err := driver.Create(ctx, sandbox.ID(owner+"."+name), spec)
	return b, time.Since(began), err
}

// coldStarts starts boxes one after another, and runs commands in one of them.
func (t technology) coldStarts(ctx context.Context, driver sandbox.Driver) error {
	var starts, ends []time.Duration
	for i := range t.alone {
		b, took, err := box(ctx, driver, fmt.Sprint("alone-", i))
		if err != nil {
			return err
		}
		starts = append(starts, took)
		began := time.Now()
		if err := b.Close(ctx); err != nil {
			return err
		}
		ends = append(ends, time.Since(began))
	}
	row("start, one after another", starts, "")
	row("end", ends, "")
	b, _, err := box(ctx, driver, "talks")
	if err != nil {
		return err
	}
	defer b.Close(ctx)
	return roundTrips(ctx, b)
}

// roundTrips times what a box does for its holder.
func roundTrips(ctx context.Context, b sandbox.Box) error {
	content := bytes.Repeat([]byte("headway "), 512)
	doings := []struct {
		what string
		do   func() error
	}{
		{"a command's round trip (true)", func() error {
			r, err := b.Run(ctx, sandbox.Command{Argv: []string{"true"}})
			if err == nil && (r.Exit != 0 || r.Limit != "") {
				err = fmt.Errorf("true ended with %d, limit %q: %s", r.Exit, r.Limit, r.Stderr)
			}
			return err
		}},
		{"write 4 KiB", func() error { return b.Write(ctx, sandbox.Work+"/file", content, 0o644) }},
		{"read 4 KiB", func() error {
			got, err := b.Read(ctx, sandbox.Work+"/file", 1<<20)
			if err == nil && !bytes.Equal(got, content) {
				err = fmt.Errorf("wrote %d bytes and read %d others", len(content), len(got))
			}
			return err
		}},
	}
	if r, ok := b.(sandbox.Resetter); ok {
		doings = append(doings, struct {
			what string
			do   func() error
		}{"reset", func() error { return r.Reset(ctx) }})
	}
	for _, d := range doings {
		var times []time.Duration
		for range 200 {
			began := time.Now()
			if err := d.do(); err != nil {
				return err
			}
			times = append(times, time.Since(began))
		}
		row(d.what, times, "")
	}
	return nil
}

// manyStarts starts many boxes at one instant, all of which are there at once in the end: without a
// bound on how many start at a time, and through a pool, which has one.
func (t technology) manyStarts(ctx context.Context, driver sandbox.Driver) error {
	boxes, times, errs := make([]sandbox.Box, t.many), make([]time.Duration, t.many), make([]error, t.many)
	before, began := memoryOf(descendants(os.Getpid())), time.Now()
	inParallel(t.many, func(i int) { boxes[i], times[i], errs[i] = box(ctx, driver, fmt.Sprint("many-", i)) })
	all := time.Since(began)
	memory := (memoryOf(descendants(os.Getpid())) - before) / int64(t.many)
	inParallel(t.many, func(i int) {
		if boxes[i] != nil {
			if err := boxes[i].Close(ctx); err != nil && errs[i] == nil {
				errs[i] = err
			}
		}
	})
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	row(fmt.Sprintf("start, %d at one instant", t.many), times, fmt.Sprintf("all there after %v", all.Round(time.Millisecond)))
	if err := t.manyLeases(ctx, driver); err != nil {
		return err
	}
	fmt.Printf("%-46s %10.1f MiB, its processes' share of memory (PSS) with %d open\n", "memory of a box", float64(memory)/(1<<20), t.many)
	return nil
}

// manyLeases asks a pool for many boxes at one instant.
func (t technology) manyLeases(ctx context.Context, driver sandbox.Driver) error {
	p, err := pool.Open(ctx, pool.Options{Driver: driver, Spec: spec, Owner: owner, StartTimeout: 5 * time.Minute})
	if err != nil {
		return err
	}
	times, errs := make([]time.Duration, t.many), make([]error, t.many)
	began := time.Now()
	inParallel(t.many, func(i int) {
		l, err := p.Lease(ctx, fmt.Sprint(i))
		if err == nil {
			err = l.Ready(ctx)
			times[i] = l.Waited() + l.Started()
		}
		errs[i] = err
	})
	all, s := time.Since(began), p.Status()
	if err := p.Close(ctx); err != nil {
		return err
	}
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	row(fmt.Sprintf("lease, %d at one instant, a few start at once", t.many), times,
		fmt.Sprintf("all there after %v, a start alone %.1f/%.1f ms", all.Round(time.Millisecond), s.StartS.P50*1000, s.StartS.P99*1000))
	return nil
}

// inParallel does something so many times at once, and waits for all.
func inParallel(n int, do func(i int)) {
	var wait sync.WaitGroup
	for i := range n {
		wait.Go(func() { do(i) })
	}
	wait.Wait()
}

// descendants are the processes below one.
func descendants(pid int) (below []int) {
	children := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		// The name in brackets may hold anything; the parent is the second field after it.
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		child, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		parent, _ := strconv.Atoi(fields[1])
		children[parent] = append(children[parent], child)
	}
	for next := children[pid]; len(next) > 0; {
		below = append(below, next[0])
		next = append(next[1:], children[next[0]]...)
	}
	return below
}

// memoryOf is what processes take of memory, what they share divided among those who share it, in bytes.
func memoryOf(pids []int) (bytes int64) {
	for _, pid := range pids {
		file, err := os.Open(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			continue // it has ended
		}
		for lines := bufio.NewScanner(file); lines.Scan(); {
			var kilobytes int64
			if n, _ := fmt.Sscanf(lines.Text(), "Pss: %d kB", &kilobytes); n == 1 {
				bytes += kilobytes << 10
			}
		}
		_ = file.Close()
	}
	return bytes
}
