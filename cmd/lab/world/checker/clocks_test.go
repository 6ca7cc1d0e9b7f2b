package checker

import (
	"slices"
	"testing"

	"github.com/headway-rl/headway/cmd/lab/world/history"
)

// A plane that was started again has no replies of before, also where one of them comes only then.
func TestRepliesEndWithThePlane(t *testing.T) {
	for late, want := range map[int64]bool{0: false, 1: false, -1: true} {
		r := record(t)
		i := r.find("/rollouts/claim", 200, `"id":"g`, 5)
		was := r.exchange(i)
		was.Key = "key"
		x := r.again(i)
		x.Lost, x.Status, x.Response, x.BeganNS = []byte("{}"), 0, nil, r.lines[i].AtNS
		start := history.Line{AtNS: r.lines[i].AtNS, Host: x.To, Kind: "start"}
		if late == 0 {
			r.lines = slices.Insert(r.lines, i+1, start)
		} else {
			start.AtNS = was.BeganNS + late
			r.lines = slices.Insert(r.lines, i, start)
		}
		if found := r.check(); says(found, RuleReply) != want {
			t.Errorf("a start %d ns after the first call: %+v", late, found)
		}
	}
}

// A plane answers nothing while another one writes, and may answer before and after that.
func TestADeposedPlaneAnswersNothing(t *testing.T) {
	for began, want := range map[int64]bool{1: false, 5: true, 12: false} {
		c := &check{count: map[string]int{}}
		c.log = &ledger{c: c, times: make([]int64, 30), recovered: []int64{10, 20}, attempts: map[attemptID]*attempt{}}
		c.said = &testimony{}
		for i := range c.log.times {
			c.log.times[i] = int64(i) * second / 10
		}
		for n, at := range map[int64]int64{5: 2, 15: 4, 25: 10} { // an event of each writer, and when it was acknowledged
			id := attemptID{n, 0, 1}
			c.log.attempts[id] = &attempt{id: id, state: scored, ended: n}
			c.said.finishes = append(c.said.finishes, finish{call: call{began: at * second, at: at*second + 1}, id: id, counted: true})
		}
		c.writers = map[int]logTime{0: {to: "plane0"}, 1: {to: "plane1"}, 2: {to: "plane0"}}
		c.said.named = []named{{call: call{to: "plane0", began: began * second, at: began*second + 1, status: 200, whole: true}, kind: "touch"}}
		if c.checkDeposed(); says(c.found, RuleWriter) != want {
			t.Errorf("a call at %d s: %+v", began, c.found)
		}
	}
}

// A plane that takes over from one that has ended answers from the log. It may lose the lease before it can write.
func TestAPlaneThatTookOverAnswers(t *testing.T) {
	const writer, other = "plane1", "plane0"
	for _, test := range []struct {
		what    string
		kind    string
		at      int64            // the second of the call
		starts  map[int64]string // by the second
		resumes bool
		broken  bool
		away    int64 // seconds for which the writer is cut off, up to the call
	}{
		{"it ends before the next writes", "touch", 7, map[int64]string{3: other, 5: writer, 8: other}, true, false, 0},
		{"it is deposed by the next", "touch", 7, map[int64]string{3: other, 5: writer, 12: other}, true, false, 0},
		{"it stands to the end", "touch", 7, map[int64]string{3: other, 5: writer}, true, false, 0},
		{"rollouts fail by a restart", "touch", 7, map[int64]string{3: other, 5: writer, 12: other}, false, true, 0},
		{"a version that is there", "publish", 7, map[int64]string{3: other, 5: writer, 12: other}, false, false, 0},
		{"a lease that is there", "renew", 7, map[int64]string{3: other, 5: writer, 12: other}, false, false, 0},
		{"a new lease", "lease", 7, map[int64]string{3: other, 5: writer, 12: other}, true, true, 0},
		{"a lease given back", "nack", 7, map[int64]string{3: other, 5: writer, 12: other}, true, true, 0},
		{"the writer goes on", "touch", 7, map[int64]string{3: other, 8: other}, true, true, 0},
		{"it answers behind the next", "touch", 10, map[int64]string{3: other, 5: writer, 12: other}, true, true, 0},
		{"it wrote before the writer", "touch", 7, map[int64]string{5: writer, 8: other}, true, true, 0},
		{"it wrote before, and stands to the end", "touch", 7, map[int64]string{5: writer}, true, true, 0},
		{"the writer is cut off", "touch", 7, map[int64]string{3: other, 12: other}, true, false, 2},
		{"the writer is cut off for less than its lease", "touch", 7, map[int64]string{3: other, 12: other}, true, true, 0},
	} {
		c := &check{count: map[string]int{}, lines: []history.Line{{AtNS: 2 * second}, {AtNS: 4 * second}, {AtNS: 11 * second}}}
		c.log = &ledger{c: c, times: make([]int64, 30), recovered: []int64{10, 20}, attempts: map[attemptID]*attempt{}}
		c.log.rules.ResumeRestart = test.resumes
		for at, host := range test.starts {
			c.lines = append(c.lines, history.Line{AtNS: at * second, Host: host, Kind: "start"})
		}
		c.said = &testimony{}
		for n, at := range map[int64]int64{5: 2, 15: 4, 25: 11} { // an event of each writer, and when it was acknowledged
			c.log.times[n] = at * second
			id := attemptID{n, 0, 1}
			c.log.attempts[id] = &attempt{id: id, state: scored, ended: n}
			c.said.finishes = append(c.said.finishes, finish{call: call{began: at * second, at: at * second}, id: id, counted: true})
		}
		c.outages = []outage{{span{(test.at - test.away) * second, test.at*second + 1}, writer, "cut", "broker"}}
		c.log.times[10], c.log.times[20] = 4*second, 9*second
		c.writers = map[int]logTime{0: {to: other}, 1: {to: writer, line: 1}, 2: {to: writer, line: 2}}
		n := named{call: call{to: other, began: test.at * second, at: test.at*second + 1, status: 200, whole: true}, kind: test.kind}
		if test.kind != "touch" {
			n.lease = 3
		}
		c.said.named = []named{n}
		if c.checkDeposed(); says(c.found, RuleWriter) != test.broken {
			t.Errorf("%s: %+v", test.what, c.found)
		}
	}
}

// A plane that is cut off, or ends, answers a publish or an ack before, since the version is durable. Its successor finds the
// version seconds later: the answer says nothing of the successor's clock.
func TestAVersionIsFoundLater(t *testing.T) {
	for said, want := range map[[3]string]int64{
		{"publish", "plane0"}: 10 * second, {"publish", "plane1"}: 2 * second, {"ack", "plane0"}: 10 * second, {"ack", "plane1"}: 2 * second,
		{"publish", "plane1", "plane1"}: 10 * second, {"ack", "plane1", "plane1"}: 10 * second, {"ack", "plane1", "plane0"}: 2 * second,
	} {
		c := &check{count: map[string]int{}, lines: []history.Line{{AtNS: 3 * second, Host: said[2], Kind: "start"}, {AtNS: 10 * second, Host: "worker0"}}}
		c.log = &ledger{c: c, times: make([]int64, 30), recovered: []int64{10}, attempts: map[attemptID]*attempt{{1, 0, 1}: {state: scored, ended: 20}}}
		c.log.versions = append(c.log.versions, made{}, made{n: 12})
		c.said = &testimony{finishes: []finish{{call: call{to: "plane1", began: 9 * second, at: 10 * second}, id: attemptID{1, 0, 1}, counted: true}}}
		answered := call{to: said[1], began: second, at: 2 * second, status: 200, whole: true}
		if said[0] == "ack" {
			c.log.leases = map[int64]*lease{3: {trained: 12}}
			c.said.named = []named{{call: answered, lease: 3, kind: "ack"}}
		} else {
			c.said.publishes = []publish{{call: answered, manifest: publishWord{Version: 1}}}
		}
		c.writers = map[int]logTime{1: {to: "plane1", line: 1}}
		if got := c.clocks()[1].to; got != want {
			t.Errorf("%v: at most %d, want %d", said, got, want)
		}
		c.outages = []outage{{span{2 * second, 3 * second}, "plane1", "freeze", ""}}
		if got := c.clocks()[1].to; said[1] == "plane1" && got != 10*second {
			t.Errorf("%v of a plane that stood still then: at most %d, want what the finish says", said, got)
		}
		c.outages, c.writers = nil, nil
		if got := c.clocks()[1].to; got != 10*second {
			t.Errorf("%v, and nobody heard the writer: at most %d, want what the finish says", said, got)
		}
	}
}

// A plane that stood still may refuse a call in the moment in which it ends the claim. An earlier refusal keeps the claim.
func TestARefusalKeepsWithinATick(t *testing.T) {
	for _, test := range []struct {
		status     int
		at, before int64
		message    string
		want       int64
	}{
		{503, second, second, "the writer's lease was not renewed for 9 s", -1},
		{503, second, second + second/4, "the writer's lease was not renewed for 9 s", 7},
		{503, second, 2 * second, "this process stands by", -1},
		{200, second, second, "", 7},
		{410, second, 2 * second, "", -1},
	} {
		n := &named{call: call{status: test.status, began: 7, at: test.at}, kind: "touch", message: test.message}
		if heard, _ := lastWord([]*named{n}, test.before, -1, -1); heard != test.want {
			t.Errorf("%+v: heard at %d, want %d", test, heard, test.want)
		}
	}
}

// A holder that was refused for now and is silent then has what was left of its time, behind the stop and its grace. No
// refusal renews anything, and each has the clock stand still for three seconds at least.
func TestARefusalRenewsNothing(t *testing.T) {
	freeze := []outage{{span{10 * second, 25 * second}, "broker", "freeze", ""}} // the clock stands still from 12.5 to 35 s
	for _, test := range []struct {
		what    string
		outages []outage
		refused []int64 // when, in seconds; the last word before is at 9 s
		by      string
		ended   int64
		broken  bool
	}{
		{"what ran before the stop counts", freeze, []int64{13, 18, 23}, "plane0", 40, false},
		{"the stop does not count", freeze, []int64{13, 18, 23}, "plane0", 18, true},
		{"the grace does not count", freeze, []int64{13, 18, 23}, "plane0", 33, true},
		{"it has not run out", freeze, []int64{13, 18, 23}, "plane0", 39, true},
		{"a refusal alone stops the clock", nil, []int64{10, 12, 14, 16}, "plane0", 20, true},
		{"for three seconds", nil, []int64{10, 12, 14, 16}, "plane0", 26, false},
		{"not that of another plane", nil, []int64{10, 12, 14, 16}, "plane1", 18, false},
	} {
		c := &check{count: map[string]int{}, outages: test.outages, lines: []history.Line{{Host: "broker", Kind: "start"}}, writers: map[int]logTime{0: {to: "plane0"}}}
		c.log = &ledger{c: c, times: []int64{0, second, test.ended * second}, steps: map[[2]int64]int64{}}
		c.log.rules.writerS, c.log.rules.leaseS = 3, 8
		c.said = &testimony{ranks: 1}
		id, held := attemptID{1, 0, 1}, [2]int64{3, 1}
		e := &expiry{check: c, clocks: clocks{{}}, stops: map[int][]span{}, claims: map[attemptID][]*named{}, leases: map[[2]int64][]*named{}}
		e.given = map[attemptID]*claim{id: {call: call{to: "plane0", began: second}, id: id, worker: "worker0", deadlineS: 8}}
		says := func(at int64, to string, status int) {
			n := &named{call: call{to: to, began: at * second, at: at * second, status: status, whole: true}, message: "the writer's lease was not renewed for 9 s"}
			e.claims[id], e.leases[held] = append(e.claims[id], n), append(e.leases[held], n)
		}
		says(9, "plane0", 200)
		for _, at := range test.refused {
			says(at, test.by, 503)
		}
		for what, end := range map[string]func(){
			"claim": func() { e.claimEnded(&attempt{id: id, began: 1, ended: 2}) },
			"lease": func() { e.leaseEnded(&lease{id: 3}, &giveBack{n: 2, kind: "expired", attempt: 1}) },
		} {
			c.found = nil
			if end(); len(c.found) > 0 != test.broken {
				t.Errorf("%s of a %s: %+v", test.what, what, c.found)
			}
		}
	}
}

// One of a cluster's servers may be away, and a claim's time goes on; two are a cluster that nobody can write to.
func TestClustersStopWithoutAMajority(t *testing.T) {
	c := &check{log: &ledger{}}
	c.log.rules.writerS = 3
	c.outages = []outage{{span{1 * second, 9 * second}, "broker0", "freeze", ""}, {span{2 * second, 9 * second}, "plane0", "cut", "broker0"}}
	if got := c.stops("plane0", 0); len(got) > 0 {
		t.Errorf("one server: %+v", got)
	}
	c.outages = append(c.outages, outage{span{3 * second, 8 * second}, "broker2", "dead", "kill"})
	if got, want := c.stops("plane0", 0), []span{{5*second + second/2, 10*second + second/2}}; !slices.Equal(got, want) {
		t.Errorf("two servers: %+v, want %+v", got, want)
	}
}

// A plane that is cut off cannot write where its broker is elsewhere, and can where the broker is inside it.
func TestCutsStopWithABrokerElsewhere(t *testing.T) {
	for host, want := range map[string]int{"broker": 1, "worker0": 0} {
		c := &check{log: &ledger{}, lines: []history.Line{{Host: host, Kind: "start"}}}
		c.log.rules.writerS = 3
		c.outages = []outage{{span{1 * second, 9 * second}, "plane0", "cut", ""}}
		if got := c.stops("plane0", 0); len(got) != want {
			t.Errorf("%s: %+v, want %d", host, got, want)
		}
	}
}

// A plane that recovers the run in an outage, or after it, was away from then on: claims and leases stand still for as long
// after it. One that wrote before the outage was away for all of it.
func TestAWriterIsAwayFromItsRecoveryOn(t *testing.T) {
	for recovered, want := range map[int64][]span{
		0: {{12*second + second/2, 23*second + second/2}}, 15: {{15 * second, 21 * second}}, 18: nil, 20: nil,
	} {
		c := &check{count: map[string]int{}, outages: []outage{{span{10 * second, 18 * second}, "broker", "dead", "kill"}}}
		c.log = &ledger{c: c, times: []int64{0, 0, 100 * second, 101 * second}, recovered: []int64{2}}
		c.log.rules.writerS = 3
		c.writers = map[int]logTime{1: {to: "plane1"}}
		at := (recovered - 100) * second // what the log's time lacks
		e := &expiry{check: c, clocks: clocks{{}, {at, at}}, stops: map[int][]span{}}
		if got := e.still(3); !slices.Equal(got, want) {
			t.Errorf("recovered at %d s: %+v, want %+v", recovered, got, want)
		}
	}
	for began, want := range map[int64][]span{5: {{12*second + second/2, 23*second + second/2}}, 15: {{15 * second, 21 * second}}, 20: nil} {
		c := &check{count: map[string]int{}, outages: []outage{{span{10 * second, 18 * second}, "broker", "dead", "kill"}}}
		c.log = &ledger{c: c, times: []int64{0, 100 * second, 101 * second}}
		c.log.rules.writerS = 3
		c.writers = map[int]logTime{0: {to: "plane1"}}
		at := (began - 100) * second
		e := &expiry{check: c, clocks: clocks{{at, at}}, stops: map[int][]span{}}
		if got := e.still(2); !slices.Equal(got, want) {
			t.Errorf("the run began at %d s: %+v, want %+v", began, got, want)
		}
	}
	c := &check{log: &ledger{}, outages: []outage{{span{1 * second, 9 * second}, "broker0", "freeze", ""}, {span{3 * second, 8 * second}, "broker2", "dead", "kill"}}}
	if got, want := c.stops("plane0", 7*second), []span{{7 * second, 9 * second}}; !slices.Equal(got, want) {
		t.Errorf("without a majority: %+v, want %+v", got, want)
	}
}

// A plane that can write no more may say that a lease is over: whoever recovers the run gives its batch out anew. One that
// wrote something else after that has not kept its word.
func TestALeaseIsOverUnwritten(t *testing.T) {
	for said, want := range map[[2]any]bool{{"plane0", int64(10)}: false, {"plane0", int64(5)}: true, {"plane1", int64(10)}: true} {
		c := &check{count: map[string]int{}, ending: history.Ending{Finished: true}, writers: map[int]logTime{0: {to: "plane0"}, 1: {to: "plane1"}}}
		c.log = &ledger{c: c, times: make([]int64, 30), recovered: []int64{10}, leases: map[int64]*lease{3: {id: 3, returned: []giveBack{{n: 10, kind: "recovered", attempt: 1}}}}}
		for i := range c.log.times {
			c.log.times[i] = int64(i) * second
		}
		c.said = &testimony{}
		e := &expiry{check: c, clocks: clocks{{}, {}}}
		e.leaseGone(&named{call: call{to: said[0].(string), began: said[1].(int64) * second, at: said[1].(int64) * second, status: 410, whole: true}, lease: 3, attempt: 1})
		if says(c.found, RuleExpired) != want {
			t.Errorf("%v: %+v", said, c.found)
		}
	}
}

// A plane that found no room keeps nothing of a rollout. Behind a restart its claim is over, and it fails when it is resumed.
func TestAClaimIsOverUnkept(t *testing.T) {
	for _, test := range []struct {
		what          string
		fault         string
		left, resumed bool
		broken        bool
	}{
		{"no room, and not resumed yet", "full", true, false, false},
		{"no room, and resumed", "full", true, true, true},
		{"no room, and no restart", "full", false, false, true},
		{"room, and not resumed yet", "kill", true, false, true},
	} {
		id := attemptID{1, 0, 1}
		a := &attempt{id: id, state: running, began: 1}
		c := &check{count: map[string]int{}, ending: history.Ending{Finished: true}, outages: []outage{{span{second, 2 * second}, "plane0", test.fault, ""}}}
		c.writers = map[int]logTime{0: {to: "plane0"}, 1: {to: "plane0"}}
		l := &ledger{c: c, times: []int64{0, second, 2 * second, 3 * second}, attempts: map[attemptID]*attempt{id: a}, newest: map[attemptID]*attempt{{1, 0, 0}: a}, slots: map[int64]*attempt{0: a}}
		c.log, l.rules.ResumeRestart = l, true
		if test.left {
			l.recover(&entry{n: 2, kind: "recovered"})
		}
		if test.resumed {
			l.action(&entry{n: 3, kind: "resume-rollout", group: 1, attempt: 1})
		}
		e := &expiry{check: c, clocks: clocks{{}, {}}}
		e.claimGone(&named{call: call{to: "plane0", began: 4 * second, at: 4 * second, status: 410, whole: true}, id: id})
		if says(c.found, RuleExpired) != test.broken {
			t.Errorf("%s: %+v", test.what, c.found)
		}
	}
}
