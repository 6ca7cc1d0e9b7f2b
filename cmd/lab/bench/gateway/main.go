// Command gateway measures what the gateway costs per event of a token stream.
//
// This program plays the engine and the agents. The engine's events are rendered beforehand, one
// write each, with the time of sending in their text; the agents are clients that read it. Between
// them stands nothing (direct), headway serve with its gateway, a relay that only copies bytes, or a
// router of others. Of each it prints the processor time per event, and how many events a core could
// carry by that. It also prints how much later than without it an event arrives. With -vllm it
// compares the tokens per second of a real engine with and without the gateway instead. With -against
// it compares the gateway of the working tree with that of a commit.
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headway-rl/headway/cmd/lab/bench/played"
)

// settings of an experiment.
type settings struct {
	streams int           // at once
	events  int           // of one stream
	pause   time.Duration // between two events of one stream; 0 for none
	rounds  int           // measured, after one that is not
	spread  bool          // the streams' events come one after the other, not all at one instant
}

func main() {
	streams := flag.Int("streams", 64, "streams at once")
	events := flag.Int("events", 400, "events of one stream, at the first rate")
	rates := flag.String("rates", "40,320", "events a second of one stream, where they are paced: each is measured for as long as the first")
	rounds := flag.Int("rounds", 5, "measured rounds of every arm, in turn; with -against, of old, new, new, old")
	url := flag.String("vllm", "", "compare the tokens per second of a real vLLM at this address, with and without the gateway, instead")
	model := flag.String("model", "", "directory of the model that it serves")
	relayTo := flag.String("relay", "", "copy bytes to this address instead: the program starts itself so, as the limit of what Go can do")
	against := flag.String("against", "", "compare the gateway with that of this commit instead")
	rawFlag := flag.Bool("raw", false, "turn on gateway.raw_io of the gateway")
	flag.Parse()
	raw = *rawFlag
	run := func() error { return compare(*streams, *events, *rates, *rounds) }
	if *relayTo != "" {
		run = func() error { return relay(*relayTo) }
	}
	if *url != "" {
		run = func() error { return pairs(*url, *model, *streams, *events, *rounds) }
	}
	if *against != "" {
		run = func() error { return compareCommits(*against, *streams, *events, *rates, *rounds) }
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "gateway:", err)
		os.Exit(1)
	}
}

// compare measures all arms, paced and as fast as they go.
func compare(streams, events int, rates string, rounds int) error {
	scenes, err := scenesOf(streams, events, rates, rounds)
	if err != nil {
		return err
	}
	engine, err := played.New()
	if err != nil {
		return err
	}
	defer engine.Close()
	arms, stop, err := open(engine, streams)
	defer stop()
	if err != nil {
		return err
	}
	for _, s := range scenes {
		results, err := measure(engine, arms, s.settings)
		if err != nil {
			return err
		}
		print(s.title, s.settings, results)
	}
	return nil
}

// scene is an experiment with its title.
type scene struct {
	title string
	settings
}

// scenesOf lists the experiments: each rate with events one after the other, the first with all at one instant as
// well, and without pauses.
func scenesOf(streams, events int, rates string, rounds int) ([]scene, error) {
	var out []scene
	first := 0.0
	for text := range strings.SplitSeq(rates, ",") {
		rate, err := strconv.ParseFloat(text, 64)
		if err != nil || rate <= 0 {
			return nil, fmt.Errorf("-rates has %q: want numbers above 0, such as 40,320", text)
		}
		if first == 0 {
			first = rate
		}
		title := fmt.Sprintf("%d streams, %g events/s each, ", streams, rate)
		paced := settings{streams, int(float64(events) * rate / first), time.Duration(float64(time.Second) / rate), rounds, true}
		out = append(out, scene{title + "one after the other", paced})
		if rate == first {
			paced.spread = false
			out = append(out, scene{title + "all at one instant, as of a decode step", paced})
		}
	}
	return append(out, scene{fmt.Sprintf("%d streams, as fast as they go", streams), settings{streams, 20 * events, 0, rounds, false}}), nil
}

// result is what one round of one arm measured.
type result struct {
	events    int
	seconds   float64
	cpu       float64   // of what stands between, in seconds
	latencies []float64 // of events, in milliseconds, sorted
}

// measure runs all arms in turn, so that what else the machine does meets them alike.
func measure(engine *played.Engine, arms []*arm, s settings) (map[*arm][]result, error) {
	out := map[*arm][]result{}
	for round := range s.rounds + 1 {
		for _, a := range arms {
			r, err := a.round(engine, s)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", a.name, err)
			}
			if round > 0 {
				out[a] = append(out[a], r)
			}
		}
	}
	return out, nil
}

// print renders the medians over the rounds; the added latency is against the direct arm of the same round.
func print(title string, s settings, results map[*arm][]result) {
	fmt.Printf("\n%s, %d events a stream, medians over %d rounds\n", title, s.events, s.rounds)
	fmt.Printf("%-22s %12s %14s %12s %10s %10s\n", "", "CPU µs/event", "events/s·core", "events/s", "p50 ms", "p99 ms")
	var direct *arm
	names := []*arm{}
	for a := range results {
		names = append(names, a)
		if a.pid == 0 {
			direct = a
		}
	}
	slices.SortFunc(names, func(a, b *arm) int { return a.order - b.order })
	for _, a := range names {
		var cpu, speed, p50, p99 []float64
		for i, r := range results[a] {
			cpu, speed = append(cpu, r.cpu/float64(r.events)*1e6), append(speed, float64(r.events)/r.seconds)
			base := result{latencies: []float64{0}}
			if a != direct {
				base = results[direct][i]
			}
			p50, p99 = append(p50, at(r.latencies, 0.5)-at(base.latencies, 0.5)), append(p99, at(r.latencies, 0.99)-at(base.latencies, 0.99))
		}
		core := "–"
		if a.pid != 0 {
			core = fmt.Sprintf("%.0f", 1e6/median(cpu))
		}
		added := "+"
		if a == direct {
			added = ""
		}
		fmt.Printf("%-22s %12.1f %14s %12.0f %10s %10s\n", a.name, median(cpu), core, median(speed),
			fmt.Sprintf("%s%.3f", added, median(p50)), fmt.Sprintf("%s%.3f", added, median(p99)))
	}
}

// at is a quantile of sorted values.
func at(sorted []float64, q float64) float64 { return sorted[int(q*float64(len(sorted)-1))] }

func median(values []float64) float64 {
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	return at(sorted, 0.5)
}
