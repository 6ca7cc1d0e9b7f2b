package checker

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/cmd/lab/world/history"
)

// conversation is that of a receiver with a plane, as text: from when to when each call went, in milliseconds behind a
// status of a run, the request and the answer. What begins with # is said by a status of its only engine.
type conversation [][4]string

const (
	// holding is the report of a receiver that has loaded version 3.
	holding = `{"instance":"A","engine":"engine0","stage":0,"served":-1,"loaded":3,"done":1,"wait_s":15}`
	// serving is that of one that serves it.
	serving = `{"instance":"A","engine":"engine0","stage":0,"served":3,"loaded":-1,"done":2,"wait_s":15}`
	// fresh is the word of a new process.
	fresh = `{"instance":"B","engine":"engine0","stage":0,"served":-1,"loaded":-1,"wait_s":15}`
	// there is the word of a busy one.
	there = `{"instance":"A","engine":"engine0","stage":0,"served":-1,"loaded":-1,"wait_s":0}`

	load      = `{"seq":1,"kind":"load","version":3,"offer":"sha256:3"}`
	switching = `{"seq":2,"kind":"switch","version":3}`
	nothing   = `{"seq":0,"version":-1}`
	sound     = `[{"name":"engine0","state":"serving","stages":[{"engine":"engine0","stage":0,"version":3,"loaded":-1,"state":"serving"}]}]`
	unsound   = `[{"name":"engine0","state":"serving","stages":[{"engine":"engine0","stage":0,"version":-1,"loaded":-1,"state":"quarantined"}]}]`
	cleared   = `[{"name":"engine0","state":"lost","stages":[{"engine":"engine0","stage":0,"version":-1,"loaded":-1,"state":"quarantined"}]}]`
	underway  = `[{"name":"engine0","state":"serving","stages":[{"engine":"engine0","stage":0,"version":-1,"loaded":-1,"state":"loading"}]}]`
)

// hold has a conversation come behind the history.
func (r *recording) hold(lines conversation) {
	r.tb.Helper()
	status := r.exchange(r.find("/status", 200, `"state":"running"`, 5))
	var said map[string]json.RawMessage
	if err := json.Unmarshal(status.Response, &said); err != nil {
		r.tb.Fatal(err)
	}
	from := r.lines[len(r.lines)-1].AtNS + 100*second
	for _, l := range lines {
		var began, at int64
		if _, err := fmt.Sscan(l[0]+" "+l[1], &began, &at); err != nil {
			r.tb.Fatal(err)
		}
		x := history.Exchange{BeganNS: from + began*1e6, To: "plane0", Method: "POST", Path: "/api/v1/receivers/receiver0", Status: 200, Request: []byte(l[2]), Response: []byte(l[3])}
		if engines, ok := strings.CutPrefix(l[2], "#"); ok {
			if of, begins := strings.CutPrefix(engines, "0"); begins { // nothing has been admitted
				engines, said["ledger"] = of, json.RawMessage(`{"balanced":true}`)
			}
			said["engines"] = json.RawMessage(engines)
			x.Method, x.Path, x.Request = "GET", "/api/v1/status", nil
			x.Response, _ = json.Marshal(said)
		}
		r.lines = append(r.lines, history.Line{AtNS: from + at*1e6, Host: "receiver0", Kind: "exchange", Exchange: &x})
	}
}

func TestReceivers(t *testing.T) {
	for _, try := range []struct {
		what  string
		wrong bool
		said  conversation
	}{
		{"one that loads, and then serves", false, conversation{
			{"0", "10", fresh, load}, {"10", "20", strings.Replace(holding, "A", "B", 1), switching}, {"20", "9000", strings.Replace(serving, "A", "B", 1), nothing}, {"300", "301", "#" + sound, ""},
		}},
		{"a busy one hears of a switch in passing", false, conversation{{"0", "10", there, switching}}},
		{"one is told to serve what it does not hold", true, conversation{{"0", "10", fresh, switching}}},
		{"one is told to serve another version than it holds", true, conversation{{"0", "10", strings.Replace(holding, `"loaded":3`, `"loaded":2`, 1), switching}}},
		{"one is told to load bytes that nobody names", true, conversation{{"0", "10", fresh, strings.Replace(load, "sha256:3", "", 1)}}},
		{"one is told to load a version that is not there", true, conversation{{"0", "10", fresh, strings.Replace(load, `"version":3`, `"version":300`, 1)}}},
		{"a new process is taken for the one before", true, conversation{
			{"0", "10", holding, switching}, {"10", "20", serving, nothing}, {"500", "9000", fresh, nothing}, {"700", "701", "#" + sound, ""},
		}},
		{"a new process is not heard yet", false, conversation{
			{"0", "10", holding, switching}, {"10", "20", serving, nothing}, {"500", "9000", fresh, nothing}, {"550", "551", "#" + sound, ""},
		}},
		{"an engine goes on though its stage is without weights", true, conversation{
			{"0", "1", "#" + unsound, ""}, {"1000", "1001", "#" + unsound, ""}, {"2000", "2001", "#" + unsound, ""},
		}},
		{"an engine goes on for as long as it takes to see that", false, conversation{
			{"0", "1", "#" + unsound, ""}, {"1000", "1001", "#" + unsound, ""}, {"2000", "2001", "#" + cleared, ""}, {"3000", "3001", "#" + unsound, ""},
		}},
		{"an engine of a run whose start waits for another", false, conversation{
			{"0", "1", "#0" + unsound, ""}, {"1000", "1001", "#0" + unsound, ""}, {"2000", "2001", "#0" + unsound, ""},
		}},
		{"an engine whose stage loads beside what it serves", false, conversation{
			{"0", "1", "#" + unsound, ""}, {"1000", "1001", "#" + underway, ""}, {"2000", "2001", "#" + unsound, ""},
		}},
	} {
		t.Run(strings.ReplaceAll(try.what, " ", "-"), func(t *testing.T) {
			r := record(t)
			r.hold(try.said)
			if found := r.check(); says(found, RuleReceiver) != try.wrong {
				t.Errorf("wrong is %v, and found was: %+v", try.wrong, found)
			}
		})
	}
}

// A plane that stands still, or is cut off from its broker, may be late to see that a stage has lost its weights.
func TestAnUnsoundStageDuringAnOutage(t *testing.T) {
	r := record(t)
	r.hold(conversation{{"0", "1", "#" + unsound, ""}, {"1000", "1001", "#" + unsound, ""}, {"2000", "2001", "#" + unsound, ""}})
	r.fault("plane0", len(r.lines)-2, 1)
	if found := r.check(); says(found, RuleReceiver) {
		t.Errorf("%+v", found)
	}
	for text, wrong := range map[string]bool{"reset broker for 50 ms": false, "reset worker0 for 50 ms": true} {
		r := record(t)
		r.hold(conversation{{"0", "1", "#" + unsound, ""}, {"1000", "1001", "#" + unsound, ""}, {"2000", "2001", "#" + unsound, ""}})
		line := len(r.lines) - 2
		r.lines = slices.Insert(r.lines, line, history.Line{AtNS: r.lines[line].AtNS, Host: "plane0", Kind: "fault", Text: text})
		if found := r.check(); says(found, RuleReceiver) != wrong {
			t.Errorf("%s: wrong is %v, and found was %+v", text, wrong, found)
		}
	}
}
