//go:build faketime

package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"hash/fnv"
	"os"
	"runtime"

	"github.com/headway-rl/headway/cmd/lab/world/machine"
	"github.com/headway-rl/headway/cmd/lab/world/plan"
	"github.com/headway-rl/headway/cmd/lab/world/scenario"
)

// result is the line that a world prints.
type result struct {
	Seed       uint64         `json:"seed"`
	Plan       plan.Plan      `json:"plan"`
	Steps      int            `json:"steps"`
	Events     int            `json:"events"`
	Faults     map[string]int `json:"faults"`
	Pairs      map[string]int `json:"pairs"`
	Violations []violation    `json:"violations"`
	Stuck      string         `json:"stuck,omitempty"`
	Mix        string         `json:"mix"`
	WorldS     float64        `json:"world_s"`
	AllocMB    uint64         `json:"alloc_mb"`
}

type violation struct {
	Rule string `json:"rule"`
	Text string `json:"text"`
}

func main() {
	seed := flag.Uint64("seed", 1, "the seed whose plan is drawn")
	file := flag.String("plan", "", "a plan to run instead")
	written := flag.String("history", "", "where to write the history, a line of JSON each")
	order := flag.String("order", "", "where to write the first picks of the scheduler")
	flag.Parse()
	p := plan.Draw(*seed)
	if *file != "" {
		raw, err := os.ReadFile(*file)
		must(err)
		p = plan.Plan{}
		must(json.Unmarshal(raw, &p))
	}
	if *order != "" {
		machine.KeepOrder(1 << 19)
	}
	w, err := scenario.Run(p)
	must(err)
	r := result{Seed: p.Seed, Plan: p, Steps: w.Steps(), Events: len(w.History), Faults: w.Faults, Pairs: w.Pairs, Stuck: w.Stuck, WorldS: w.Seconds()}
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
	r.AllocMB = memory.TotalAlloc >> 20
	if *written != "" {
		writeHistory(*written, w)
	}
	if *order != "" {
		writeOrder(*order)
	}
	raw, err := json.Marshal(r)
	must(err)
	fmt.Println(string(raw))
	if r.Stuck != "" || len(r.Violations) > 0 {
		os.Exit(1)
	}
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "world:", err)
		os.Exit(2)
	}
}

func writeHistory(path string, w *scenario.World) {
	f, err := os.Create(path)
	must(err)
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
