package checker

import (
	"fmt"
	"hash/crc32"
	"strings"
	"testing"

	"github.com/headway-rl/headway/cmd/lab/world/history"
)

// cellLog is a log of two engines of the cell b and one of the planes, as far as an attempt plays on engine 1. The lines
// behind it are events and actions without their numbers and times.
func cellLog(lines ...string) (text []byte) {
	all := append([]string{
		`"e":"run-started"`,
		`"e":"engine-joined","engine":1,"cell":"b","inc":3`,
		`"e":"engine-joined","engine":2,"cell":"b","inc":3,"q":1`,
		`"a":"load-weights","engine":1,"attempt":1`,
		`"e":"weights-loaded","engine":1,"attempt":1,"cell":"b","inc":3,"q":2`,
		`"a":"switch-weights","engine":1,"attempt":1`,
		`"e":"weights-switched","engine":1,"attempt":1,"cell":"b","inc":3,"q":3`,
		`"a":"start-rollout","engine":1,"slot":1,"g":1,"attempt":1`,
	}, lines...)
	const header = `{"n":0,"note":"header","data":{"loop":{"GroupSize":1,"BatchGroups":1,"EngineSlots":[1,1,1],"EngineCells":[0,1,1],"ResumeLost":true,"StaysInCell":true}}`
	sum := uint32(0)
	add := func(line string) {
		sum = crc32.Update(sum, castagnoli, []byte(line))
		text = fmt.Appendf(text, "%s,\"crc\":\"%08x\"}\n", line, sum)
	}
	add(header)
	n := 0
	for _, line := range all {
		if strings.HasPrefix(line, `"e"`) {
			n++
			add(fmt.Sprintf(`{"n":%d,"t":%d,%s`, n, int64(n)*second, line))
		} else {
			add(fmt.Sprintf(`{"n":%d,%s`, n, line))
		}
	}
	return text
}

// An event of a cell counts once, in its turn, and of the newest process alone. A restart of a plane takes nothing from a
// cell, and the loss of its last engine takes all.
func TestCells(t *testing.T) {
	const begun, ended = `"e":"first-token","slot":1,"g":1,"attempt":1,"cell":"b","inc":3,"q":4`, `"e":"rollout-scored","slot":1,"g":1,"attempt":1,"reward":1,"tokens":3,"cell":"b","inc":3,"q":5`
	hello := []string{`"e":"engine-lost","engine":1,"cell":"b","inc":7`, `"e":"engine-lost","engine":2,"cell":"b","inc":7`, `"e":"engine-joined","engine":1,"cell":"b","inc":7`, `"e":"engine-joined","engine":2,"cell":"b","inc":7,"q":1`}
	const lost = `"e":"engine-lost","engine":2,"reason":"engine"`
	for _, test := range []struct {
		what        string
		lines       []string
		state, want string // of the attempt, and a part of the violation
	}{
		{"a rollout ends behind a restart", []string{`"e":"recovered"`, begun, ended}, scored, ""},
		{"a word counts twice", []string{begun, begun}, running, "event 4 of process 3 of b, and event 4 of process 3 came before"},
		{"a word is missing", []string{ended}, scored, "event 5 of process 3 of b, and event 3 of process 3 came before"},
		{"a cell begins anew", hello, failed, ""},
		{"a process that was replaced is heard", append(hello, begun), failed, "it is of process 3 of b, which process 7 had replaced"},
		{"a process ends in a slot of the one before", append(hello, `"e":"rollout-failed","slot":1,"g":1,"attempt":1,"reason":"restart","cell":"b","inc":7,"q":2`), failed, "process 7 of b joined by event 8, and ends {1 0 1} in slot 1, where it was not told to play since"},
		{"a process ends in a slot of its own", append(hello, `"a":"start-rollout","engine":1,"slot":1,"g":1,"attempt":2`, `"e":"rollout-failed","slot":1,"g":1,"attempt":2,"reason":"restart","cell":"b","inc":7,"q":2`), failed, ""},
		{"a hello in the middle", append(hello, `"e":"first-token","slot":1,"cell":"b","inc":9,"q":1`), failed, "event 1 of process 9 of b, and event 1 of process 7"},
		{"a cell joins without a loss", hello[2:], running, "engine 1 joins, and was not lost"},
		{"a plane speaks for a cell", []string{`"e":"first-token","slot":1,"g":1,"attempt":1`}, running, "its event is of no cell"},
		{"a cell speaks for a plane", []string{`"e":"first-token","g":1,"attempt":1,"cell":"b","inc":3,"q":4`}, running, "which has no such engine"},
		{"a cell speaks for another", []string{`"e":"first-token","slot":1,"cell":"c","inc":9,"q":4`}, running, "it is of c, and its engine is of b"},
		{"an engine loads what it serves", []string{`"e":"recovered"`, `"a":"load-weights","engine":1,"attempt":2`}, running, "engine 1 loads version 0, and serves version 0"},
		{"a restart fails a rollout of a cell", []string{`"e":"recovered"`, `"a":"start-rollout","engine":1,"slot":1,"g":1,"attempt":2`}, running, "{1 0 2} starts, and attempt 1 before it is running"},
		{"one engine of two is lost", []string{lost}, running, ""},
		{"both are lost", []string{lost, `"e":"engine-lost","engine":1,"reason":"engine"`}, failed, ""},
		{"a load fails, and is not tried again", []string{lost, `"e":"tick"`, `"a":"load-weights","engine":1,"attempt":2,"v":1`, `"e":"sync-failed","engine":1,"attempt":2,"v":1,"cell":"b","inc":3,"q":4`}, failed, ""},
		{"a load fails, and is tried again", []string{lost, `"e":"tick"`, `"a":"load-weights","engine":1,"attempt":2,"v":1`, `"e":"sync-failed","engine":1,"attempt":2,"v":1,"cell":"b","inc":3,"q":4`,
			`"a":"load-weights","engine":1,"attempt":3,"v":1`}, running, ""},
		{"a load fails that is none", []string{lost, `"e":"sync-failed","engine":1,"attempt":9,"v":1,"cell":"b","inc":3,"q":4`}, running, ""},
	} {
		c := &check{count: map[string]int{}}
		l := fold(c, cellLog(test.lines...))
		var found []string
		for _, v := range c.found {
			found = append(found, v.Rule+": "+v.Text)
		}
		if text := strings.Join(found, "\n"); test.want == "" && text != "" || !strings.Contains(text, test.want) {
			t.Errorf("%s: %q, want %q", test.what, text, test.want)
		}
		if a := l.attempts[attemptID{1, 0, 1}]; a == nil || a.state != test.state {
			t.Errorf("%s: the attempt is %+v, want it %s", test.what, a, test.state)
		}
	}
}

// The answer to a claim may be lost with the cell or the plane that gave it. The claim is kept, and ends as silent later.
func TestAClaimMayBeLostWithWhoGaveIt(t *testing.T) {
	for _, test := range []struct {
		engine int64
		host   string
		broken bool
	}{{1, "cell0", false}, {1, "worker0", false}, {1, "plane0", true}, {0, "plane0", false}, {0, "cell0", true}} {
		c := &check{count: map[string]int{}, said: &testimony{}, outages: []outage{{span{2 * second, 3 * second}, test.host, "power", ""}}, ending: history.Ending{Finished: true}}
		c.log = &ledger{c: c, times: []int64{0, second, 5 * second}}
		c.log.rules.EngineCells = []int{0, 1}
		e := &expiry{check: c, clocks: clocks{{0, 0}}}
		if e.givenToNobody(&attempt{began: 1, ended: 2, engine: test.engine}); says(c.found, RuleClaim) != test.broken {
			t.Errorf("engine %d, %s: %+v", test.engine, test.host, c.found)
		}
		c.found, c.said = nil, &testimony{unkept: []call{{to: "plane1", began: 2 * second, at: 6 * second}}}
		if e.givenToNobody(&attempt{began: 1, ended: 2, engine: test.engine}); says(c.found, RuleClaim) != (test.broken && test.engine != 0) {
			t.Errorf("engine %d, %s, with a claim that could not be kept: %+v", test.engine, test.host, c.found)
		}
	}
}

// A cell is lost for its silence only if something kept it from being heard.
func TestSilence(t *testing.T) {
	for _, test := range []struct {
		o    outage
		lost int
	}{
		{outage{span{1, second}, "worker0", "kill", ""}, 1},
		{outage{span{1, 8 * second}, "b", "freeze", ""}, 0},
		{outage{span{1, 8 * second}, "plane0", "cut", "b"}, 0},
		{outage{span{1, 8 * second}, "broker", "freeze", ""}, 0},
		{outage{span{40 * second, 50 * second}, "b", "freeze", ""}, 1},
	} {
		c := &check{count: map[string]int{}, outages: []outage{test.o}}
		c.log = fold(c, cellLog(`"e":"engine-lost","engine":1,"reason":"engine"`))
		c.checkSilent(clocks{{0, 0}})
		if len(c.found) != test.lost {
			t.Errorf("%+v: %v", test.o, c.found)
		}
	}
}

// A cell that heard nothing since its engines were taken for lost may give out the claim of an attempt that was replaced.
func TestClaimOfACellThatLags(t *testing.T) {
	log := cellLog(`"e":"engine-lost","engine":1,"reason":"engine"`, `"e":"engine-lost","engine":2,"reason":"engine"`)
	cut := []outage{{span{7 * second, 9 * second}, "plane0", "cut", "cell0"}}
	for _, test := range []struct {
		what    string
		outages []outage
		to      string
		id      attemptID
		wrong   int
	}{
		{"a cell that was cut off", cut, "cell0", attemptID{1, 0, 1}, 0},
		{"another cell", cut, "cell1", attemptID{1, 0, 1}, 1},
		{"a plane", cut, "plane0", attemptID{1, 0, 1}, 1},
		{"a cell that heard", nil, "cell0", attemptID{1, 0, 1}, 1},
		{"an attempt that the log lacks", cut, "cell0", attemptID{1, 0, 3}, 1},
	} {
		c := &check{count: map[string]int{}, outages: test.outages}
		c.log = fold(c, log)
		c.said = &testimony{finishes: []finish{{call: call{at: 9 * second}, id: attemptID{1, 0, 2}, counted: true}}}
		c.said.claims = []claim{{call: call{to: test.to, began: 10 * second, at: 11 * second}, id: test.id, name: "g1-s0", key: "k", secret: "s"}}
		c.checkClaims()
		if len(c.found) != test.wrong {
			t.Errorf("%s: %v", test.what, c.found)
		}
	}
}

// A second process of a cell has replies of its own.
func TestReplyOfATwin(t *testing.T) {
	for _, test := range []struct {
		what  string
		o     outage
		wrong int
	}{
		{"it came between the two calls", outage{span{2 * second, 3 * second}, "cell0", "twin", ""}, 0},
		{"it was there at both", outage{span{second / 2, 8 * second}, "cell0", "twin", ""}, 0},
		{"it came later", outage{span{6 * second, 8 * second}, "cell0", "twin", ""}, 1},
		{"it was gone before", outage{span{second / 4, second / 2}, "cell0", "twin", ""}, 1},
		{"of another cell", outage{span{2 * second, 3 * second}, "cell1", "twin", ""}, 1},
		{"another fault", outage{span{2 * second, 3 * second}, "cell0", "freeze", ""}, 1},
	} {
		ask := func(began, at int64, reply string) history.Line {
			return history.Line{AtNS: at, Host: "worker0", Kind: "exchange", Exchange: &history.Exchange{
				BeganNS: began, To: "cell0", Method: "POST", Path: "/api/v1/rollouts/claim", Key: "k", Status: 200, Response: []byte(reply)}}
		}
		c := &check{count: map[string]int{}, outages: []outage{test.o}}
		c.lines = []history.Line{{Host: "cell0", Kind: "start"}, ask(second, 3*second/2, "a"), ask(4*second, 5*second, "b")}
		if c.checkReplies(); len(c.found) != test.wrong {
			t.Errorf("%s: %v", test.what, c.found)
		}
	}
}
