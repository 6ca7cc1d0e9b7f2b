package episode

import (
	"encoding/json"
	"testing"
)

// Answers are alike up to what passes, and up to how their JSON is written.
func TestAlike(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want bool
	}{
		{`{"a": 1, "b": "<x>"}`, `{"b":"\u003cx\u003e","a":1}`, true},
		{`"5 passed in 0.12s"`, `"5 passed in 3.4 s"`, true},
		{`"5 passed in 0.12s"`, `"4 passed in 0.12s"`, false},
		{`"-rw-r--r-- 1 u u 12 Nov 29 10:02 n.txt"`, `"-rw-r--r-- 1 u u 12 Dec  1 00:15 n.txt"`, true},
		{`"-rw-r--r-- 1 u u 12 Nov 29 10:02 n.txt"`, `"-rw-r--r-- 1 u u 13 Nov 29 10:02 n.txt"`, false},
		{`"at 2026-11-29T10:02:03.5Z\n10:02:04 done"`, `"at 2026-12-01T00:00:00Z\n9:59:59 done"`, true},
		{`"Sun Nov 29 10:02:03 UTC 2026"`, `"Tue Dec  1 09:02:03 UTC 2026"`, true},
		{`"due 2026-11-29"`, `"due 2031-01-01"`, false},
		{`"score 21:19"`, `"score 19:21"`, false},
		{`"in 3 minutes"`, `"in 2 minutes"`, true},
		{`"the flag is 0xdeadbeef"`, `"the flag is 0x12345678"`, false},
		{`9007199254740993`, `9007199254740992`, false},
		{`"main.c:42:10: error"`, `"main.c:43:10: error"`, false},
		{`"Got 42"`, `"Got 43"`, false},
		{`"<object at 0x7f00>"`, `"<object at 0x7fff>"`, true},
		{`"x1s"`, `"x2s"`, false},
		{`["a", {"t": "1 ms"}]`, `["a", {"t": "2 ms"}]`, true},
		{`"damaged`, `"damaged`, false},
	} {
		if got := alike([]json.RawMessage{json.RawMessage(test.a)}, []json.RawMessage{json.RawMessage(test.b)}); got != test.want {
			t.Errorf("%s and %s are alike: %t", test.a, test.b, got)
		}
	}
	if alike(nil, []json.RawMessage{json.RawMessage(`1`)}) || !alike(nil, []json.RawMessage{}) {
		t.Error("another number of messages")
	}
}
