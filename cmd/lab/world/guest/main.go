//go:build faketime

package main

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/headway-rl/headway/cmd/lab/world/checker"
	"github.com/headway-rl/headway/cmd/lab/world/machine"
	"github.com/headway-rl/headway/cmd/lab/world/outcome"
	"github.com/headway-rl/headway/cmd/lab/world/plan"
	"github.com/headway-rl/headway/cmd/lab/world/scenario"
)

func main() {
	history := flag.Bool("history", false, "write the history to the third file, a line of JSON each")
	order := flag.String("order", "", "where to write the first picks of the scheduler")
	flag.Parse()
	raw, err := io.ReadAll(os.Stdin)
	must(err)
	var p plan.Plan
	must(json.Unmarshal(raw, &p))
	if *order != "" {
		machine.KeepOrder(1 << 19)
	}
	w, err := scenario.Run(p)
	must(err)
	r := outcome.Outcome{
		Seed: p.Seed, Plan: p, Steps: w.Steps(), Events: int64(len(w.History)), Faults: w.Faults, Pairs: w.Pairs, Stuck: w.Stuck, WorldS: w.Seconds(),
		Trace: cmp.Or(w.Ending.Log, filepath.Join(w.Ending.Dir, "trace.ndjson.zst")),
	}
	sampler := checker.Sampler{Vocabulary: scenario.Policy.Vocabulary, EOS: scenario.Policy.EOS, Length: scenario.Policy.Length, Start: scenario.Start, TokenNS: tokenNS(p),
		Rows: p.Rows && p.Store.PayloadBytesMax == 0}
	for _, v := range checker.Check(sampler, w.History, w.Ending) {
		r.Violations = append(r.Violations, outcome.Violation{Rule: v.Rule, Text: v.Text})
	}
	hash := fnv.New64a()
	for _, line := range w.History {
		raw, err := json.Marshal(line)
		must(err)
		_, _ = hash.Write(raw)
	}
	picks, mix := machine.Mix()
	r.Mix = fmt.Sprintf("%x-%x-%x", picks, mix, hash.Sum64())
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	r.AllocMB = float64(memory.TotalAlloc >> 20)
	if *history {
		writeHistory(w)
	}
	if *order != "" {
		writeOrder(*order)
	}
	raw, err = json.Marshal(r)
	must(err)
	fmt.Println(string(raw))
	if r.Stuck != "" || len(r.Violations) > 0 {
		os.Exit(outcome.Broken)
	}
}

// tokenNS is how long a token takes at the fastest engine, in nanoseconds.
func tokenNS(p plan.Plan) int64 {
	least := p.Engines[0].TokenUS
	for _, e := range p.Engines {
		least = min(least, e.TokenUS)
	}
	return int64(least) * 1000
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "world:", err)
		os.Exit(outcome.Harness)
	}
}

func writeHistory(w *scenario.World) {
	f := os.NewFile(3, "history")
	lines := json.NewEncoder(f)
	for _, line := range w.History {
		must(lines.Encode(line))
	}
	must(f.Close())
}

func writeOrder(path string) {
	f, err := os.Create(path)
	must(err)
	for i, p := range machine.Order() {
		from, at := runtime.FuncForPC(uintptr(p.Start)), runtime.FuncForPC(uintptr(p.PC))
		if from != nil && at != nil {
			_, _ = fmt.Fprintln(f, i, p.ID, p.AtNS, from.Name(), at.Name(), p.Random)
		}
	}
	must(f.Close())
}
