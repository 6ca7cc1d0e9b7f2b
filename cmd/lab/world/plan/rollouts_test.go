package plan

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// What is drawn beside the rest is met by some seeds, and fits the world that it comes over.
func TestRolloutsAreDrawn(t *testing.T) {
	const seeds = 2000
	met := map[string]int{}
	for seed := range uint64(seeds) {
		p := Draw(seed)
		hosts := []string{""}
		for _, all := range p.hosts() {
			hosts = append(hosts, all...)
		}
		for _, f := range p.Faults {
			if !slices.Contains(hosts, f.Host) || !slices.Contains(hosts, f.Other) {
				t.Fatalf("seed %d has %+v, and the hosts %v", seed, f, hosts)
			}
			if f.Kind == Deaf && p.Planes > 1 {
				t.Errorf("seed %d has an engine that lies to a plane that may not have seen it before", seed)
			}
			if (f.Kind == Drop || f.Kind == Lag) && (f.N < 1 || f.Other == "") {
				t.Errorf("seed %d has %+v", seed, f)
			}
		}
		count := func(what string, yes bool) {
			if yes {
				met[what]++
			}
		}
		count("cells", len(p.Cells()) > 0)
		count("chat", p.Chat != nil)
		count("players", p.Chat != nil && p.Chat.Players > 0)
		count("environment", p.Chat != nil && p.Chat.Environment)
		count("rows", p.Rows)
		count("slow", p.Engines[0].TokenUS >= 50_000)
		count("replaced", slices.ContainsFunc(p.Faults, func(f Fault) bool {
			return f.Kind == Reset && strings.HasPrefix(f.Host, "cell") && strings.HasPrefix(f.Other, "worker")
		}))
		for _, kind := range []string{Drop, Lag, Abort, Deaf} {
			count(kind, slices.ContainsFunc(p.Faults, func(f Fault) bool { return f.Kind == kind }))
		}
		if p.Rows && slices.ContainsFunc(p.Engines, func(e Engine) bool { return !e.Spans }) {
			t.Errorf("seed %d wants rows of an engine that says none", seed)
		}
		text, err := json.Marshal(p)
		var again Plan
		if err == nil {
			err = json.Unmarshal(text, &again)
		}
		if other, _ := json.Marshal(again); err != nil || string(other) != string(text) {
			t.Fatalf("seed %d: %v: %s reads as %s", seed, err, text, other)
		}
	}
	for _, what := range []string{"cells", "chat", "players", "environment", "rows", "slow", "replaced", Drop, Lag, Abort, Deaf} {
		if n := met[what]; n < seeds/40 || n > seeds/3 {
			t.Errorf("%d of %d seeds have %s", n, seeds, what)
		}
	}
}
