package cell

import (
	"encoding/json"
	"reflect"
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
		case reflect.Pointer, reflect.Func, reflect.Interface, reflect.Chan, reflect.Map, reflect.UnsafePointer:
			t.Errorf("%s is a %v", at, of.Kind())
		}
	}
	look("Event", reflect.TypeFor[Event]())
	ev := Event{Event: loop.Event{Time: 7, Kind: loop.RolloutScored, Slot: 3, Group: 4, Attempt: 2, Tokens: 9, Reward: 0.1, Mark: loop.MarkSolved},
		Facts:  Facts{GenerateNS: 1, EnvironmentNS: 2, ByVersion: []loop.VersionTokens{{Version: 5, Tokens: 9}}, VersionTokens: 45, Spans: 2, Resumed: true, StateLag: 1},
		Origin: trace.Origin{Cell: "b", Incarnation: 2, Sequence: 9}, Error: "said", Down: true, Fatal: true}
	text, err := json.Marshal(ev)
	if err != nil {
		t.Fatal(err)
	}
	var got Event
	if err := json.Unmarshal(text, &got); err != nil || !reflect.DeepEqual(got, ev) {
		t.Errorf("%+v has become %+v by %s: %v", ev, got, text, err)
	}
}
