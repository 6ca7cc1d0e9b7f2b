// Package soak runs many seeds side by side and counts them in a ledger. By the ledger, a run goes on where it was
// interrupted.
package soak

import (
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/headway-rl/headway/cmd/lab/world/program"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/internal/replace"
)

// Ledger is everything that is known of the seeds that were run with one build.
type Ledger struct {
	// Program is the sum of the program that ran them.
	Program string `json:"program"`
	// Done are the seeds that were run.
	Done Ranges `json:"done"`
	// Totals are sums over them.
	Totals Totals `json:"totals"`
	// Failures are the seeds that failed, in order.
	Failures []Failure `json:"failures,omitempty"`
}

// Totals are sums over seeds.
type Totals struct {
	// Seeds were run. Counting of them count; Short says of the others what they lack.
	Seeds    int64            `json:"seeds"`
	Counting int64            `json:"counting"`
	Short    map[string]int64 `json:"short,omitempty"`
	// Steps, Events, Faults, Pairs and Marks are those of the outcomes.
	Steps  int64            `json:"steps"`
	Events int64            `json:"events"`
	Faults map[string]int64 `json:"faults"`
	Pairs  map[string]int64 `json:"pairs,omitempty"`
	Marks  map[string]int64 `json:"marks,omitempty"`
	// WorldS is the time that passed in the worlds, and ProcessS the time that the processes took, in seconds.
	WorldS   float64 `json:"world_s"`
	ProcessS float64 `json:"process_s"`
	// WallS is how long the seeds took in all, several side by side, in seconds.
	WallS float64 `json:"wall_s"`
	// SlowestS and Slowest are the longest time of a process, in seconds, and its seed.
	SlowestS float64 `json:"slowest_s"`
	Slowest  uint64  `json:"slowest"`
	// LargestMB and Largest are the most memory that a process asked for in all, in MiB, and its seed.
	LargestMB float64 `json:"largest_mb"`
	Largest   uint64  `json:"largest"`
	// Rules counts the seeds that failed by the rule that they broke.
	Rules map[string]int64 `json:"rules,omitempty"`
}

// Failure is a seed that failed.
type Failure struct {
	Seed uint64 `json:"seed"`
	Rule string `json:"rule"`
	Text string `json:"text"`
	// Script is the path of the file that keeps its plan.
	Script string `json:"script,omitempty"`
}

// Open reads a ledger. One that is not there is empty. One of another build is refused: its seeds say nothing of this
// build.
func Open(path, sum string) (*Ledger, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &Ledger{Program: sum}, nil
	}
	if err != nil {
		return nil, err
	}
	var l Ledger
	if err := json.Unmarshal(text, &l); err != nil {
		return nil, failure.Usage("name another file, or delete this one", "the ledger %s cannot be read: %w", path, err)
	}
	if l.Program != sum {
		return nil, failure.Usage("name another file with --ledger, or begin it anew with --again", "the ledger %s has the seeds of another build of the world's program: %.12s, and this build is %.12s", path, l.Program, sum)
	}
	return &l, nil
}

// Write keeps the ledger in a file: in whole, or not at all.
func (l *Ledger) Write(path string) error {
	text, err := json.MarshalIndent(l, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return replace.File(path, append(text, '\n'), 0o644)
}

// Add adds the result of a seed.
func (l *Ledger) Add(seed uint64, r program.Result, script string) {
	l.Done.Add(seed)
	l.Totals.add(seed, r)
	if r.Rule == "" {
		return
	}
	l.Failures = append(l.Failures, Failure{Seed: seed, Rule: r.Rule, Text: r.Text, Script: script})
	slices.SortFunc(l.Failures, func(a, b Failure) int { return cmp.Compare(a.Seed, b.Seed) })
}

func (t *Totals) add(seed uint64, r program.Result) {
	t.Seeds++
	switch short := r.Short(); {
	case r.Rule != "":
		count(&t.Rules, map[string]int64{r.Rule: 1})
	case short == "":
		t.Counting++
	default:
		count(&t.Short, map[string]int64{short: 1})
	}
	t.Steps += int64(r.Steps)
	t.Events += r.Events
	count(&t.Faults, r.Faults)
	count(&t.Pairs, r.Pairs)
	count(&t.Marks, r.Marks)
	t.WorldS += r.WorldS
	t.ProcessS += r.Wall.Seconds()
	if s := r.Wall.Seconds(); s > t.SlowestS || s == t.SlowestS && seed < t.Slowest {
		t.SlowestS, t.Slowest = s, seed
	}
	if r.AllocMB > t.LargestMB || r.AllocMB == t.LargestMB && seed < t.Largest {
		t.LargestMB, t.Largest = r.AllocMB, seed
	}
}

// count adds counts by name. A count of 0 is kept: it declares the name.
func count(sums *map[string]int64, more map[string]int64) {
	if *sums == nil {
		*sums = map[string]int64{}
	}
	for name, n := range more {
		(*sums)[name] += n
	}
}

// Failed counts the seeds that failed.
func (t *Totals) Failed() int64 {
	n := int64(0)
	for _, seeds := range t.Rules {
		n += seeds
	}
	return n
}
