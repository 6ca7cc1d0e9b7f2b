package config

import (
	"strings"
	"testing"
)

// An error is one line that no terminal obeys, and tells no password of an address, however the document is written.
func TestErrorIsPrintable(t *testing.T) {
	for document, want := range map[string]string{
		`"seed\e[31m\u202e\nfake": 1`:                        `seed\x1b[31m\u202e\nfake: unknown key`,
		`sinks: {mlflow: {url: "http://u:hunter2@a"}}`:       `sinks.mlflow.url: "http://REDACTED@a" holds a password`,
		`sinks: {mlflow: {url: "http://u:hunter2/w@a"}}`:     `"http://REDACTED@a" is not the address of a server`,
		`sinks: {mlflow: {url: "http://hunter2@a/b"}}`:       `"http://REDACTED@a/b" holds a password`,
		`sinks: {spans: {url: "http://a/@scope/x?token=1"}}`: `"http://a/@scope/x?token=1" has a query`,
	} {
		bad, err := Parse("a.yaml", []byte(document))
		if err == nil {
			_, err = bad.Resolve()
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") || strings.ContainsAny(err.Error(), "\x1b\u202e\n") {
			t.Errorf("%s: %v, want %q", document, err, want)
		}
	}
}
