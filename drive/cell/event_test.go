package cell

import (
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
)

// TestEventHasValuesAlone: an event can be sent, and is the same where it arrives.
func TestEventHasValuesAlone(t *testing.T) {
	var look func(at string, of reflect.Type)
	look = func(at string, of reflect.Type) {
		switch of.Kind() {
		case reflect.Struct:
			for i := range of.NumField() {
				f := of.Field(i)
				if !f.IsExported() {
					t.Errorf("%s.%s is not exported", at, f.Name)
				}
				look(at+"."+f.Name, f.Type)
			}
		case reflect.Slice, reflect.Array:
			look(at, of.Elem())
		case reflect.Pointer:
			look(at, of.Elem())
		case reflect.Func, reflect.Interface, reflect.Chan, reflect.Map, reflect.UnsafePointer:
			t.Errorf("%s is a %v", at, of.Kind())
		}
	}
	look("Event", reflect.TypeFor[Event]())
	ev := Event{Event: loop.Event{Time: 7, Kind: loop.RolloutScored, Slot: 3, Group: 4, Attempt: 2, Tokens: 9, Reward: 0.1, Mark: loop.MarkSolved},
		Facts:  Facts{GenerateNS: 1, EnvironmentNS: 2, ByVersion: []loop.VersionTokens{{Version: 5, Tokens: 9}}, VersionTokens: 45, Spans: 2, Resumed: true, StateLag: 1},
		Origin: trace.Origin{Cell: "b", Incarnation: 2, Sequence: 9}, Age: 3, Payload: "there", Error: "said", Down: true, Fatal: true,
		Ask:   &Ask{Number: 3, Slots: 2, Version: 8, Ended: []Outcome{{Try: Try{Prompt: 5, Attempt: 1}, Reward: 0.1, Exact: true, Oldest: 7, Newest: 8}, {Try: Try{Prompt: 6, Attempt: 2}, Failed: FailedInfra, Error: "gone"}}},
		Hello: &Hello{Build: "one", Format: 1, Trace: 2, Run: "a", Rules: "b", Engines: []EngineHello{{Engine: 1, Name: "one", Slots: 4}}}}
	text, err := ev.Word()
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseWord(text)
	ev.Time = 0 // which is the cell's own
	if err != nil || !reflect.DeepEqual(*got, ev) {
		t.Errorf("%+v has become %+v by %s: %v", ev, got, text, err)
	}
	for _, bad := range []struct{ text, want string }{
		{"", "no word of a cell"},
		{"null", "checksum"},
		{`{"event":{"n":1}}`, "checksum"},
		{strings.Replace(string(text), `"g":4`, `"g":5`, 1), "checksum"},
		{strings.Repeat(" ", WordBytesMost+1), "bytes"},
	} {
		if _, err := ParseWord([]byte(bad.text)); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%.40q: %v, want %q", bad.text, err, bad.want)
		}
	}
	ev.Error = strings.Repeat("x", WordBytesMost)
	if _, err := ev.Word(); err == nil {
		t.Error("a word of any length is sent")
	}
}

// FuzzParseWord: a word that is taken is the same when it is sent again.
func FuzzParseWord(f *testing.F) {
	ev := Event{Event: loop.Event{Kind: loop.SyncFailed, Engine: 1, Version: 3, Attempt: 2}, Origin: trace.Origin{Cell: "b", Incarnation: 2, Sequence: 9}, Error: "said", Age: 4}
	text, err := ev.Word()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"event":{"n":1,"t":0,"e":"tick","crc":"00000000"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		ev, err := ParseWord(text)
		if err != nil {
			return
		}
		again, err := ev.Word()
		if err != nil {
			return // it became longer
		}
		if got, err := ParseWord(again); err != nil || !reflect.DeepEqual(got, ev) && !math.IsNaN(float64(ev.Reward)+float64(ev.Drift)) {
			t.Errorf("%+v has become %+v: %v", ev, got, err)
		}
	})
}
