package taskset

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// FuzzMembers compares the walk through an object with encoding/json's.
func FuzzMembers(f *testing.F) {
	for _, seed := range []string{`{}`, ` { "a" : 1 , "b":[{"c":"}"},"\""], "\u0061x":null,"d" : -1.5e3 } `, `{"a":{"b":{"c":true}},"e":"\\"}`, `{"":[]}`, "{\"a\":\n1\t}"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var want map[string]json.RawMessage
		if json.Unmarshal([]byte(text), &want) != nil || want == nil {
			return
		}
		got := map[string]json.RawMessage{}
		members([]byte(text), func(name []byte, value json.RawMessage) bool {
			got[strings.ToValidUTF8(string(name), "\ufffd")] = value
			return true
		})
		for name := range want { // the library's text for bytes that are no UTF-8, of which check lets none through
			if strings.ContainsRune(name, '\ufffd') {
				return
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	})
}

func TestMember(t *testing.T) {
	object := json.RawMessage(`{"a": {"b": {"c": 1}, "n": null}, "a.b": {"d": 2}, "x.y": "z", "l": [1]}`)
	for path, want := range map[string]string{"a.b.c": "1", "x.y": `"z"`, "a.n": "", "a.b": `{"d": 2}`, "l.0": "", "q": "", "a.b.c.d": ""} {
		if got := member(object, strings.Split(path, ".")); string(got) != want {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}
}
