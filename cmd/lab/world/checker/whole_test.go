package checker

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headway-rl/headway/cmd/lab/world/history"
)

// found says whether a check has found one thing, or nothing where want is empty.
func found(t *testing.T, name string, c *check, want string) {
	t.Helper()
	if want == "" && len(c.found) > 0 || !strings.Contains(fmt.Sprint(c.found), want) {
		t.Errorf("%s: found %v, want %q", name, c.found, want)
	}
}

// All ranks have the whole batch between them, and each is told of all of it.
func TestWhole(t *testing.T) {
	for name, change := range map[string]struct {
		of   func(w *leaseWord, b *body)
		want string
	}{
		"":             {func(*leaseWord, *body) {}, ""},
		"a group less": {func(_ *leaseWord, b *body) { b.groups[0] = 8 }, "have the groups [8] between them"},
		"tokens":       {func(w *leaseWord, _ *body) { w.Tokens = 3 }, "all ranks have 7, 3 and 2"},
		"sampled ones": {func(w *leaseWord, _ *body) { w.ResponseTokens = 1 }, "all ranks have 7, 3 and 2"},
		"rollouts":     {func(w *leaseWord, _ *body) { w.Rollouts = 1 }, "all ranks have 7, 3 and 2"},
		"staleness":    {func(w *leaseWord, _ *body) { w.StalenessMean = 1 }, "say 1.5 and 2"},
		"the largest":  {func(w *leaseWord, _ *body) { w.StalenessMax = 1 }, "say 1.5 and 2"},
	} {
		c := &check{count: map[string]int{}, log: &ledger{leases: map[int64]*lease{4: {id: 4, groups: []int64{9, 8}}}}}
		shares := map[share]*batch{}
		for rank, s := range []stamp{{Group: 8, Start: 1}, {Group: 9, Start: 2}} {
			b := &body{groups: []int64{int64(8 + rank)}, samples: []int32{0}, tokens: make([]int32, 3+rank), mask: []byte{0, 1, byte(1 - rank), 0}[:3+rank]}
			b.lease = leaseWord{Lease: 4, Version: 3, Tokens: 7, ResponseTokens: 3, Rollouts: 2, StalenessMean: 1.5, StalenessMax: 2, Stamps: []stamp{s}}
			if rank == 1 {
				change.of(&b.lease, b)
			}
			shares[share{4, rank, 2}] = &batch{rank: rank, world: 2, body: b}
		}
		c.checkWhole(shares)
		found(t, name, c, change.want)
	}
}

// A plane that was told to stop gives out what it had given out before, and nothing else.
func TestDrains(t *testing.T) {
	lines := []history.Line{{AtNS: 9 * second, Host: "plane0", Kind: "dead", Text: "stop"}}
	for name, k := range map[string]struct {
		began, at int64
		to        string
		want      string
	}{
		"before":          {2, 4, "plane0", ""},
		"after":           {4, 5, "plane0", "was told to stop at 3.000 s"},
		"by another":      {4, 5, "plane1", ""},
		"by the next one": {8, 10, "plane0", ""},
	} {
		c := &check{count: map[string]int{}, lines: lines, outages: []outage{{span{3 * second, 4 * second}, "plane0", "stop", ""}}, said: &testimony{}, log: &ledger{}}
		at := call{to: k.to, began: k.began * second, at: k.at * second}
		c.said.claims = []claim{{call: at, name: "g1-s0-a1"}}
		c.checkDrains()
		found(t, "claim "+name, c, k.want)
		c.found, c.said = nil, &testimony{batches: []batch{{call: at, body: &body{lease: leaseWord{Lease: 7}}}}}
		c.checkDrains()
		found(t, "lease "+name, c, k.want)
		c.found, c.said.batches = nil, append(c.said.batches, batch{call: call{began: second}, body: &body{lease: leaseWord{Lease: 7}}})
		c.checkDrains()
		found(t, "lease again "+name, c, "")
	}
}

// Claims end for their worker's silence, and a touch says so.
func TestOverdue(t *testing.T) {
	id := attemptID{1, 0, 1}
	for name, k := range map[string]struct {
		state         string
		outage        string
		recovered     []int64
		heard, touch  int64
		want, wanting string
	}{
		"heard of":             {running, "", nil, 25, 8, "", ""},
		"silent":               {running, "", nil, 8, 8, "goes on at the end, 22.000 s after it was heard of", ""},
		"in an outage":         {running, "plane0", nil, 8, 8, "", ""},
		"of a worker":          {running, "worker1", nil, 8, 8, "goes on at the end", ""},
		"since a restart":      {running, "", []int64{2}, 8, 8, "", ""}, // 18 s, of which the process may have given 10
		"since an earlier one": {running, "", []int64{1}, 0, 8, "goes on at the end, 29.000 s after it was heard of", ""},
		"an outage behind it":  {running, "plane0", []int64{1}, 0, 8, "", ""},
		"ended":                {failed, "", nil, 8, 8, "", ""},
		"ended, touched":       {failed, "", nil, 8, 20, "", "was told that {1 0 1} is wanted, which ended 8.000 s before"},
		"near a fault":         {failed, "plane0", nil, 8, 20, "", ""},
		"scored":               {scored, "", nil, 8, 20, "", ""},
	} {
		a := &attempt{id: id, state: k.state, ended: 2}
		c := &check{count: map[string]int{}, said: &testimony{named: []named{{call: call{host: "worker0", began: k.touch * second, at: k.touch * second}, id: id, kind: "touch", wanted: true}}}}
		c.log = &ledger{c: c, times: []int64{0, second, 12 * second, 30 * second}, attempts: map[attemptID]*attempt{id: a}, recovered: k.recovered}
		if k.outage != "" {
			c.outages = []outage{{span{9 * second, 19 * second}, k.outage, "dead", ""}}
		}
		e := &expiry{check: c, clocks: clocks{{}, {}}, given: map[attemptID]*claim{id: {deadlineS: 10}}, claims: map[attemptID][]*named{id: {{call: call{at: k.heard * second}}}}}
		e.overdue()
		found(t, name, c, k.want)
		c.found = nil
		e.stillWanted()
		found(t, name+", a touch", c, k.wanting)
	}
}

// Who is told that a rollout is not wanted may drop it: it does not go on until its claim runs out.
func TestGivenUpInVain(t *testing.T) {
	id := attemptID{1, 0, 1}
	for name, k := range map[string]struct {
		touch  int64 // in seconds
		state  string
		reason string
		want   string
	}{
		"ran out later":   {2, failed, "timeout", "was told that {1 0 1} is not wanted, and it ended for its silence 10.000 s later"},
		"ran out before":  {14, failed, "timeout", ""},
		"failed later":    {2, failed, "engine", ""},
		"scored":          {2, scored, "", ""},
		"under way still": {2, running, "", ""},
	} {
		a := &attempt{id: id, state: k.state, reason: k.reason, ended: 2}
		c := &check{count: map[string]int{}, said: &testimony{named: []named{{call: call{host: "worker0", at: k.touch * second}, id: id, kind: "touch", unwanted: true}}}}
		c.log = &ledger{c: c, times: []int64{0, second, 12 * second}, attempts: map[attemptID]*attempt{id: a}}
		(&expiry{check: c, clocks: clocks{{}, {}}}).givenUpInVain()
		found(t, name, c, k.want)
		c.found = nil
		c.said = &testimony{finishes: []finish{{call: call{host: "worker0", at: k.touch * second}, id: id, told: true}, {call: call{at: second}, id: id, told: true, counted: true}, {call: call{at: second}, id: id}}}
		(&expiry{check: c, clocks: clocks{{}, {}}}).givenUpInVain()
		found(t, name+", a finish", c, strings.Replace(k.want, "{1 0 1} is not wanted", "its finish of {1 0 1} does not count", 1))
		c.found = nil
		gone := call{host: "worker0", at: k.touch * second, whole: true, status: 410}
		c.said = &testimony{named: []named{{call: gone, id: id}, {call: gone, id: id, outcome: "expired"}}}
		(&expiry{check: c, clocks: clocks{{}, {}}}).givenUpInVain()
		found(t, name+", a refusal", c, strings.Replace(k.want, "that {1 0 1} is not wanted", "for good that there is no claim of {1 0 1}", 1))
	}
}

// Bodies of groups have the hash by which a lease or an announcement named them.
func TestGroupBodies(t *testing.T) {
	for name, k := range map[string]struct {
		leased, announced, came string
		recovered               []int64
		want                    string
	}{
		"leased":                {"a", "", "a", nil, ""},
		"announced":             {"", "a", "a", nil, ""},
		"otherwise":             {"a", "", "b", nil, "no reference to it says so"},
		"leased otherwise":      {"a", "b", "a", nil, "is announced by the hash b, and leased by a"},
		"made by another plane": {"a", "b", "b", []int64{3}, ""},
	} {
		c := &check{count: map[string]int{}, log: &ledger{recovered: k.recovered}, said: &testimony{leased: map[int64]string{}}}
		if k.leased != "" {
			c.said.leased[5] = k.leased
		}
		if k.announced != "" {
			c.said.announced = []groupSaid{{1, reference{5, 10, k.announced}}}
		}
		c.said.came = []groupSaid{{2, reference{5, 10, k.came}}}
		c.checkGroups()
		found(t, name, c, k.want)
	}
}

// A turn without rows is missed, though other turns have some, and a lease counts its rows.
func TestMissingRows(t *testing.T) {
	for name, k := range map[string]struct {
		kind string
		seen []int64
		rows int
		want string
	}{
		"all":               {"", []int64{1, 2, 3, 4}, 4, ""},
		"one of each":       {"", []int64{1, 4}, 2, ""},
		"none of a turn":    {"", []int64{1, 2, 3}, 3, "no row of the turn at token 4 of sequence 0"},
		"a full disk":       {"full", []int64{1, 2, 3}, 4, ""},
		"more than counted": {"full", []int64{1, 4}, 1, "says 1 rows of routed, and has 2"},
		"less than counted": {"", []int64{1, 4}, 3, "says 3 rows of routed, and has 2"},
	} {
		c := &check{count: map[string]int{}, sampler: Sampler{Rows: true}, log: &ledger{newest: map[attemptID]*attempt{}}}
		if k.kind != "" {
			c.outages = []outage{{span{0, second}, "broker", k.kind, ""}}
		}
		b := &body{mask: []byte{0, 1, 1, 0, 1}, tokens: make([]int32, 5), offsets: []int64{0, 5}, groups: []int64{3}, samples: []int32{0}}
		b.lease.Channels = append(b.lease.Channels, rowsSaid{"routed", k.rows, 4 - k.rows})
		seen := map[int64]bool{}
		for _, at := range k.seen {
			seen[at] = true
		}
		c.missing(&rows{name: "routed", lease: 7}, b, seen)
		found(t, name, c, k.want)
		c.found = nil
		c.counted(&batch{body: b})
		found(t, name+", counted", c, "")
		b.lease.Channels[0].Absent++
		c.counted(&batch{body: b})
		found(t, name+", counted wrongly", c, "has 5 tokens in 1 sequences")
	}
}

// An engine reads the bytes of the version that its directory names.
func TestReads(t *testing.T) {
	for hash, want := range map[string]string{"sha256:a": "", "sha256:b": "file model.safetensors of version 3 is sha256:b"} {
		c := &check{count: map[string]int{}, versions: map[int64]*content{}, lines: []history.Line{{Host: "engine0", Kind: "note", Text: "reads 3 model.safetensors " + hash}}}
		c.version(3).hashes["model.safetensors"] = hashSaid{"sha256:a", 1}
		c.held()
		found(t, hash, c, want)
	}
}

// A call that was let in and found engines busy has renewed its claim, and is no word of a plane that cannot write.
func TestLate(t *testing.T) {
	for message, want := range map[string][2]int{"rollout g1-s0-a1 has had no token for 1s": {1, 0}, "store: the writer's lease was not renewed": {0, 1}} {
		calls := []*named{{call: call{to: "plane0", status: 503, began: second, at: 2 * second}, message: message}}
		if got := [2]int{len(unrefused(calls)), len(withRefusals(nil, calls, "plane0"))}; got != want {
			t.Errorf("%s: %v, want %v", message, got, want)
		}
	}
}

// Versions that were sent lie on the disk beside the newest.
func TestVersionsKept(t *testing.T) {
	for name, k := range map[string]struct {
		there []int
		want  string
	}{
		"all":           {[]int{1, 2, 3, 4, 5}, ""},
		"three":         {[]int{2, 3, 4, 5}, ""},
		"two":           {[]int{3, 4, 5}, "version 2 was sent, and is gone"},
		"one is absent": {[]int{2, 4, 5}, "version 3 was sent, and is gone"},
	} {
		c := &check{count: map[string]int{}, versions: map[int64]*content{}, log: &ledger{versions: make([]made, 6)}, said: &testimony{}}
		c.ending.Dir = t.TempDir()
		for v := range int64(6) {
			c.version(v).sent = v > 0
		}
		for _, v := range k.there {
			dir := filepath.Join(c.ending.Dir, "weights", fmt.Sprintf("v%06d", v))
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "manifest.json"), fmt.Appendf(nil, `{"version":%d}`, v), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		c.disk()
		found(t, name, c, k.want)
	}
}

// What a broker that stands still cannot have taken is told to nobody.
func TestDurable(t *testing.T) {
	id := attemptID{1, 0, 1}
	for name, k := range map[string]struct {
		broker    string
		outage    outage
		began, at int64
		ended     int64 // the event
		want      string
	}{
		"in it":            {"broker", outage{span{2 * second, 8 * second}, "broker", "freeze", ""}, 3, 4, 2, "of {1 0 1}, which the broker could not take from 2.000 to 8.000 s"},
		"cut off":          {"broker", outage{span{2 * second, 8 * second}, "plane0", "cut", "broker"}, 3, 4, 2, "could not take"},
		"another cut off":  {"broker", outage{span{2 * second, 8 * second}, "plane1", "cut", "broker"}, 3, 4, 2, ""},
		"begun before":     {"broker", outage{span{2 * second, 8 * second}, "broker", "dead", ""}, 1, 4, 2, ""},
		"told behind it":   {"broker", outage{span{2 * second, 8 * second}, "broker", "dead", ""}, 3, 9, 2, ""},
		"there before":     {"broker", outage{span{2 * second, 8 * second}, "broker", "dead", ""}, 3, 4, 1, ""},
		"a broker inside":  {"plane0", outage{span{2 * second, 8 * second}, "plane0", "cut", ""}, 3, 4, 2, ""},
		"slow, no more":    {"broker", outage{span{2 * second, 8 * second}, "broker", "drag", ""}, 3, 4, 2, ""},
		"one of a cluster": {"broker0", outage{span{2 * second, 8 * second}, "broker0", "freeze", ""}, 3, 4, 2, ""},
	} {
		c := &check{count: map[string]int{}, lines: []history.Line{{Host: k.broker, Kind: "start"}}, outages: []outage{k.outage}}
		c.log = &ledger{c: c, times: []int64{0, second, 9 * second}, attempts: map[attemptID]*attempt{id: {id: id, state: scored, ended: k.ended}}, steps: map[[2]int64]int64{{7, 1}: k.ended}}
		at := call{host: "worker0", to: "plane0", began: k.began * second, at: k.at * second}
		b := &body{}
		b.lease.Lease, b.lease.Attempt = 7, 1
		c.said = &testimony{finishes: []finish{{call: at, id: id, counted: true}}, batches: []batch{{call: at, body: b}}}
		if k.ended == 1 {
			c.said.finishes = append(c.said.finishes, finish{id: id, call: call{began: second}})
			c.said.asks = append(c.said.asks, call{began: second, at: 5 * second})
		}
		c.checkDurable()
		found(t, name, c, k.want)
		if k.want != "" && len(c.found) != 2 {
			t.Errorf("%s: %v, want the end and the lease", name, c.found)
		}
		if k.ended == 2 { // a claim is of no event
			c.found, c.said = nil, &testimony{claims: []claim{{call: at, name: "{1 0 1}"}}}
			c.checkDurable()
			found(t, name+", claim", c, k.want)
		}
	}
}

// A run is back soon after what kept planes from it.
func TestBack(t *testing.T) {
	for name, k := range map[string]struct {
		kind, host string
		again      int64
		want       string
	}{
		"at once":      {"", "", 2, ""},
		"late":         {"", "", 40, "no plane has said that it runs for 39.000 s"},
		"an outage":    {"dead", "broker", 40, ""},
		"long behind":  {"dead", "broker", 60, "for 40.000 s"},
		"of a trainer": {"dead", "trainer", 60, "for 59.000 s"},
	} {
		c := &check{count: map[string]int{}, said: &testimony{}, log: &ledger{}}
		if k.kind != "" {
			c.outages = []outage{{span{3 * second, 20 * second}, k.host, k.kind, ""}}
		}
		for _, at := range []int64{1, 30, k.again} {
			p := poll{call: call{to: "plane0", began: at * second, at: at * second}}
			if p.word.State = "running"; at == 30 {
				p.word.State = "standby"
			}
			c.said.polls = append(c.said.polls, p)
		}
		c.checkBack()
		found(t, name, c, k.want)
	}
}
