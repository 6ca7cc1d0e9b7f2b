package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/internal/failure"
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

// An error's parts are all that its text has, passwords of addresses apart.
func TestFaults(t *testing.T) {
	_, err := Load("", "rollout.grop_size=2", "queue.factor=0")
	many, is := errors.AsType[interface {
		error
		Faults() []failure.Fault
	}](err)
	if !is {
		t.Fatalf("%T has no faults: %v", err, err)
	}
	var text []string
	for _, f := range many.Faults() {
		text = append(text, fmt.Sprintf("%s %s=%s %s", f.File, f.Key, f.Value, f.Nearest))
	}
	if want := []string{"--set rollout.grop_size= rollout.group_size", "--set queue.factor=0 "}; !slices.Equal(text, want) {
		t.Errorf("faults are %q, want %q", text, want)
	}
}
