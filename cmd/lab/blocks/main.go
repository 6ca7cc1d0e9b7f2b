// Command blocks replays the block identifiers of a trace in Mooncake's form through a cache that evicts the least
// recently used. It prints the share of prompt tokens found by size, beside what the simulator of serving finds.
// The replay is written apart from the simulator: a list and a table of blocks, without time.
//
// Usage: go run ./cmd/lab/blocks [-seed N] [-requests N] [-write FILE] [TRACE]
//
// Without a trace it draws one: conversations that grow, some of which share a beginning. -write keeps it.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/headway-rl/headway/drive/sim/serving"
	"github.com/headway-rl/headway/loop/workload/session"
)

func main() {
	seed := flag.Uint64("seed", 1, "the seed of a drawn trace")
	count := flag.Int("requests", 12000, "the requests of a drawn trace")
	write := flag.String("write", "", "a file to write the drawn trace to")
	flag.Parse()
	if err := run(os.Stdout, *seed, *count, *write, flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "blocks:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, seed uint64, count int, write, path string) error {
	trace := draw(seed, count)
	if path != "" {
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		if trace, err = read(file); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	if write != "" {
		file, err := os.Create(write)
		if err != nil {
			return err
		}
		if err := trace.write(file); err != nil {
			return err
		}
		if err := file.Close(); err != nil {
			return err
		}
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "cache, tokens\treplay\tsimulator\tdifference, points\tpreemptions\t")
	for tokens := 1 << 18; tokens <= 1<<28; tokens *= 4 {
		replayed := trace.replay(tokens / blockTokens)
		simulated, err := trace.simulate(tokens)
		if err != nil {
			return err
		}
		fmt.Fprintf(table, "%d\t%.2f %%\t%.2f %%\t%+.2f\t%d\t\n", tokens, 100*replayed, 100*simulated.HitRate(), 100*(simulated.HitRate()-replayed), simulated.Preemptions())
	}
	return table.Flush()
}

// simulate serves the trace on one replica that keeps up with it.
func (t trace) simulate(tokens int) (*serving.Result, error) {
	sessions := make([]session.Session, len(t))
	for i, r := range t {
		sessions[i] = session.Session{StartS: float64(r.Timestamp) / 1000, Calls: []session.Call{{InputTokens: r.Input, OutputTokens: r.Output, Blocks: r.Hashes[:min(len(r.Hashes), r.Input/blockTokens)]}}}
	}
	return serving.Run(serving.Config{Replicas: 1, Placement: serving.RoundRobin, Engine: serving.Engine{
		StepS: func(l serving.Load) float64 {
			return 0.004 + 1e-8*l.Resident + 4e-6*float64(l.Prefill) + 2e-11*l.PrefillPairs
		},
		BatchedTokens: 8192, Sequences: 1024, CacheTokens: tokens, BlockTokens: blockTokens,
	}}, sessions)
}
