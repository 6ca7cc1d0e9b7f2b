package config

import (
	"strings"
	"testing"

	"github.com/headway-rl/headway/internal/failure"
)

// An error about a document shows the line with a caret below the place. It shows neither passwords nor lines that name
// a secret, and a terminal obeys nothing of them.
func TestErrorShowsItsLine(t *testing.T) {
	long := "train: {batch: 64, " + strings.Repeat(" ", 300) + "bacth: 1}"
	for document, want := range map[string]string{
		"seed: 1\nrollout:\n\tgroup_size: 1":             "", // what the parser says of tabs is its own
		"rollout:\n  grop_size: 8\n":                     "  2 |   grop_size: 8\n    |   ^",
		"rollout:\n  group_size: eight # ü\r\n":          "  2 |   group_size: eight # ü\n    |               ^",
		"rollout: {\"ü\": 1, grop_size: 8}":              "  1 | rollout: {\"ü\": 1, grop_size: 8}\n    |                   ^",
		"train: {batch: 7}\nrollout:\n  group_size: 4":   "  1 | train: {batch: 7}\n    |                ^",
		"sinks: {mlflow: {url: \"http://u:hunter2@a\"}}": "  1 | sinks: {mlflow: {url: \"http://REDACTED@a\"}}\n    |                       ^",
		"urls: [http://u:hunter2@a]\nsink: 1":            "  1 | urls: [http://REDACTED@a]\n    | ^",
		"api_key: hunter2":                               "",
		"\"seed\\e\u202e\": 1":                           "  1 | \"seed\\e\\u202e\": 1\n    | ^",
		long:                                             "  1 | …" + strings.Repeat(" ", 50) + "bacth: 1}\n    | " + strings.Repeat(" ", 51) + "^",
	} {
		bad, err := Parse("a.yaml", []byte(document))
		if err == nil {
			_, err = bad.Resolve()
		}
		if err == nil {
			t.Errorf("%q is accepted", document)
			continue
		}
		var out strings.Builder
		failure.Print(&out, failure.Usage("a hint", "plan: %w", err))
		if !strings.Contains(out.String(), want) || strings.Contains(out.String(), "hunter2") || strings.ContainsAny(out.String(), "\x1b\u202e\r") {
			t.Errorf("%q prints\n%swant\n%s", document, out.String(), want)
		}
		if !strings.HasPrefix(out.String(), "headway: plan: a.yaml:") || !strings.HasSuffix(out.String(), "\n  a hint\n") {
			t.Errorf("%q prints\n%s, want the message first and the hint last", document, out.String())
		}
	}
}

// An override has no line.
func TestOverrideShowsNoLine(t *testing.T) {
	_, err := Load("", "rollout.grop_size=2")
	if detail := err.(Errors).Detail(); detail != err.Error() {
		t.Errorf("details are %q, want %q", detail, err.Error())
	}
}
