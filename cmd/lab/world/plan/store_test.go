package plan

import (
	"slices"
	"strings"
	"testing"
)

// Faults come over hosts that are there, and wait for events of hosts that are there.
func TestFaultsAreOfHosts(t *testing.T) {
	clusters, awaits := 0, 0
	for seed := range uint64(2000) {
		p := Draw(seed)
		known := map[string]bool{"": true, "observer": true}
		for role, names := range p.hosts() {
			known[role] = len(names) > 0
			for _, name := range names {
				known[name] = true
			}
		}
		for _, f := range p.Faults {
			host := f.Host != "" && (!known[f.Host] || strings.TrimRight(f.Host, "0123456789") == f.Host && f.Host != "broker" && f.Host != "trainer")
			if f.Host == "" || host || !known[f.Other] || !known[f.Await.By] {
				t.Errorf("seed %d: %+v is of hosts that are not there", seed, f)
			}
			if f.Await != (Await{}) {
				awaits++
			}
		}
		if p.Brokers > 0 {
			clusters++
			if !p.minority() {
				t.Errorf("seed %d: a cluster of %d servers keeps its majority throughout", seed, p.Brokers)
			}
		}
	}
	if clusters < 50 || awaits < 500 {
		t.Errorf("%d clusters and %d events of 2000 seeds", clusters, awaits)
	}
}

// minority says whether faults take two servers of the cluster away at a time.
func (p Plan) minority() bool {
	var down []Fault
	for _, f := range p.Faults {
		if strings.HasPrefix(f.Host, "broker") && slices.Contains([]string{Kill, Freeze, Cut, Full, Power}, f.Kind) && f.ForMS >= 1000 && f.Await == (Await{}) {
			down = append(down, f)
		}
	}
	for i, a := range down {
		for _, b := range down[:i] {
			if a.Host != b.Host && a.AtMS <= b.AtMS+b.ForMS && b.AtMS <= a.AtMS+a.ForMS {
				return true
			}
		}
	}
	return false
}
