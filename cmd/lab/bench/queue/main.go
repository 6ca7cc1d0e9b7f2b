// Command queue measures the durable queue. Producers put the payloads of groups' rollouts into
// store/jetstream; a consumer leases ready groups, reads them whole and forgets them.
//
// Beside it, in turn and over the same bytes, it measures raw JetStream, a Ray queue actor and
// TransferQueue. Raw JetStream has the same embedded server and options: the same messages are
// published and fetched, and purged behind the reader. The last two keep everything in memory: their
// contents are gone with their process.
//
// Usage, from the root of the repository: go run ./cmd/lab/bench/queue [-runs N] [-peers=false] [-json FILE]
//
// The first run installs Ray and TransferQueue (requirements.txt) for the Python on the PATH, in a
// virtual environment in the user's cache folder. That takes several GB, most of it torch.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/headway-rl/headway/cmd/lab/bench/python"
)

// load is what is sent through a queue.
type load struct {
	name string
	// groups in all, each of rollouts payloads of tokens tokens; producers work at once.
	groups, rollouts, tokens, producers int
	always                              bool
	// peers: the other queues are measured with it too.
	peers bool
}

var loads = []load{
	{"1.5 MB groups", 400, 8, 22_000, 16, false, true},
	{"2 kB groups", 60_000, 4, 57, 64, false, true},
	{"2 kB groups, one payload", 60_000, 1, 240, 64, false, false},
	{"1.5 MB groups, sync: always", 200, 8, 22_000, 16, true, false},
	{"2 kB groups, sync: always", 1000, 4, 57, 64, true, false},
}

// figure is what one run of a queue gave.
type figure struct {
	groupsPerS, cpuSPerGroup float64
	bytes                    int64 // of one group
}

// line is a line of the table, and an object of the JSON.
type line struct {
	Load       string  `json:"load"`
	GroupBytes int64   `json:"group_bytes"`
	Queue      string  `json:"queue"`
	Durable    bool    `json:"durable"`
	GroupsPerS float64 `json:"groups_per_s"`
	MBPerS     float64 `json:"mb_per_s"`
	CPUPerS    float64 `json:"cpu_us_per_group,omitempty"`
	Ratio      float64 `json:"ratio_to_raw,omitempty"`
	Note       string  `json:"note,omitempty"`
}

func main() {
	runs := flag.Int("runs", 5, "runs of each queue")
	peers := flag.Bool("peers", true, "measure the Ray queue and TransferQueue too")
	only := flag.String("only", "", "only loads whose name contains this")
	out := flag.String("json", "", "also write the figures to this file")
	flag.Parse()
	if *runs < 1 || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "queue: usage: go run ./cmd/lab/bench/queue [-runs N] [-peers=false] [-only TEXT] [-json FILE], with at least 1 run")
		os.Exit(2)
	}
	if err := bench(*runs, *peers, *only, *out); err != nil {
		fmt.Fprintln(os.Stderr, "queue:", err)
		os.Exit(1)
	}
}

func bench(runs int, peers bool, only, out string) error {
	var interpreter string
	var missing error
	if peers {
		interpreter, missing = python.Prepare("queue", "Ray and TransferQueue", "ray, transfer_queue")
	}
	fmt.Printf("%s, %s/%s, %s, %d processors; medians of %d alternating runs\n\n", time.Now().Format(time.DateOnly), runtime.GOOS, runtime.GOARCH, runtime.Version(), runtime.NumCPU(), runs)
	fmt.Printf("%-28s %-16s %-8s %10s %9s %12s %8s\n", "load", "queue", "durable", "groups/s", "MB/s", "CPU µs/group", "of raw")
	var all []line
	for _, l := range loads {
		if !strings.Contains(l.name, only) {
			continue
		}
		lines, err := compare(l, runs, interpreter)
		if err != nil {
			return err
		}
		for _, x := range lines {
			x.print()
		}
		all = append(all, lines...)
	}
	fmt.Println("\nThe Ray queue and TransferQueue hold what is queued in memory and lose it with their process.")
	if out != "" {
		text, err := json.MarshalIndent(all, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(out, append(text, '\n'), 0o644); err != nil {
			return err
		}
	}
	return missing
}

// queueOf is one of the queues of a comparison.
type queueOf struct {
	name    string
	durable bool
	run     func(l load) (figure, error)
}

// compare runs all queues in turn, several times, and returns their medians.
func compare(l load, runs int, interpreter string) ([]line, error) {
	queues := []queueOf{{"raw JetStream", true, raw}, {"Headway", true, ours}}
	if interpreter != "" && l.peers {
		for _, name := range []string{"ray", "transferqueue"} {
			queues = append(queues, queueOf{name, false, func(l load) (figure, error) { return peer(interpreter, name, l) }})
		}
	}
	figures := make([][]figure, len(queues))
	for range runs {
		for i, q := range queues {
			f, err := q.run(l)
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", l.name, q.name, err)
			}
			figures[i] = append(figures[i], f)
		}
	}
	var lines []line
	for i, q := range queues {
		rate := median(figures[i], func(f figure) float64 { return f.groupsPerS })
		bytes := figures[i][0].bytes
		x := line{Load: l.name, GroupBytes: bytes, Queue: q.name, Durable: q.durable, GroupsPerS: rate, MBPerS: rate * float64(bytes) / 1e6,
			CPUPerS: median(figures[i], func(f figure) float64 { return f.cpuSPerGroup }) * 1e6}
		if i > 0 {
			ratios := make([]figure, runs)
			for r := range runs {
				ratios[r].groupsPerS = figures[i][r].groupsPerS / figures[0][r].groupsPerS
			}
			x.Ratio = median(ratios, func(f figure) float64 { return f.groupsPerS })
		}
		lines = append(lines, x)
	}
	return lines, nil
}

func (x line) print() {
	ratio, cpu := "", ""
	if x.Ratio != 0 {
		ratio = fmt.Sprintf("%.2f", x.Ratio)
	}
	if x.CPUPerS != 0 {
		cpu = fmt.Sprintf("%.0f", x.CPUPerS)
	}
	durable := "no"
	if x.Durable {
		durable = "yes"
	}
	fmt.Printf("%-28s %-16s %-8s %10.0f %9.1f %12s %8s\n", x.Load, x.Queue, durable, x.GroupsPerS, x.MBPerS, cpu, ratio)
}

func median(figures []figure, of func(figure) float64) float64 {
	values := make([]float64, len(figures))
	for i, f := range figures {
		values[i] = of(f)
	}
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}
