package plane

import "testing"

func TestLogText(t *testing.T) {
	for text, want := range map[string]string{
		"engine a is lost: 5.0 s":                             "engine a is lost: 5.0 s",
		"it says \x1b[2J\u202e":                               `it says \x1b[2J\u202e`,
		"no\n2026-11-26 10:00:00  all is well\r\n\tat x.go:3": "no\n    2026-11-26 10:00:00  all is well\\r\n    \tat x.go:3",
	} {
		if got := logText(text); got != want {
			t.Errorf("%q is logged as %q, want %q", text, got, want)
		}
	}
}
