// Command scale measures the cost of cells, and the losses of a run when a process dies.
//
// It starts a control plane, cells, and for each cell a process that plays an engine and its agents over real sockets. Without
// flags it measures one to eight cells, and many open streams over four. Then it kills the control plane, a cell, and two of three
// NATS servers for a minute.
package main

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/headway-rl/headway/cmd/lab/bench/plane"
)

func main() {
	plays := flag.Bool("play", false, "be a process of players: the program starts itself so")
	parts := flag.String("parts", "cells,split,open,plane,cell,nats", "what is measured: cells, split, open, plane, cell, nats")
	cells := flag.String("cells", "1,2,4,8", "numbers of cells, of 64 streams each, or of 512 together")
	streams := flag.Int("open", 16384, "streams that are open at once over four cells")
	live := flag.Int("live", 2000, "rollouts that play at four cells when a process is killed")
	tokens := flag.Float64("tokens", 4000, "tokens a second of all streams together, where as many are open")
	window := flag.Duration("window", 20*time.Second, "how long each is measured")
	outage := flag.Duration("outage", time.Minute, "how long two of three NATS servers are away")
	flag.Parse()
	run := play
	if !*plays {
		run = func() error { return measure(*parts, *cells, *streams, *live, *tokens, *window, *outage) }
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

func measure(parts, cells string, streams, live int, tokens float64, window, outage time.Duration) error {
	dir, err := os.MkdirTemp("", "headway-scale-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	program, err := plane.Build(dir)
	if err != nil {
		return err
	}
	for part := range strings.SplitSeq(parts, ",") {
		switch part {
		case "cells":
			fmt.Printf("\n%d streams a cell, %g tokens/s each, over %v\n", perCell, perStream, window)
			err = loads(program, cells, func(n int) int { return n * perCell }, window)
		case "split":
			fmt.Printf("\n%d streams over all cells, %g tokens/s each, over %v\n", ofAll, perStream, window)
			err = loads(program, cells, func(int) int { return ofAll }, window)
		case "open":
			err = opened(program, streams, tokens, window)
		case "plane":
			err = deaths(program, live, 1, tokens, "the control plane is killed, and started again", (*run).planeDies)
		case "cell":
			err = deaths(program, live, 1, tokens, "a cell is killed, and started again", (*run).cellDies)
		case "nats":
			err = deaths(program, live, 3, tokens, fmt.Sprintf("two of three NATS servers are away for %v", outage), func(r *run) error { return r.serversAway(outage) })
		default:
			err = fmt.Errorf("-parts has %q: want some of cells, split, open, plane, cell, nats", part)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", part, err)
		}
	}
	return nil
}

// perCell is how many streams a cell has, ofAll how many all have together, and perStream the tokens a second of each, where
// numbers of cells are compared.
const (
	perCell   = 64
	ofAll     = 512
	perStream = 10.0
)

// loads measures each number of cells, with so many streams.
func loads(program, cells string, streams func(cells int) int, window time.Duration) error {
	header()
	for text := range strings.SplitSeq(cells, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return fmt.Errorf("-cells has %q: want numbers above 0, such as 1,2,4,8", text)
		}
		if err := load(program, n, streams(n), perStream, shortS, window); err != nil {
			return err
		}
	}
	return nil
}

// opened measures many open streams.
func opened(program string, streams int, tokens float64, window time.Duration) error {
	fmt.Printf("\n%d streams over 4 cells, %g tokens/s of all, over %v\n", streams, tokens, window)
	header()
	return load(program, 4, streams, tokens/float64(streams), longS, window)
}
