package config

import (
	"strings"
	"testing"
)

func TestPublicHasNoPasswords(t *testing.T) {
	for given, want := range map[string]string{
		"nats://host:4222":                            "nats://host:4222",
		"nats://me:s3cr3t@host:4222":                  "nats://host:4222",
		"tls://me:s3c@r3t@a:1,nats://s3cr3ttoken@b:2": "tls://a:1,nats://b:2",
		"me:s3cr3t@host":                              "host",
	} {
		cfg, err := LoadWith("", Override{Text: "store.nats.url=" + given})
		if err != nil {
			t.Fatal(err)
		}
		public := cfg.Public()
		if public.Store.NATS.URL != want || strings.Contains(string(public.YAML()), "s3c") {
			t.Errorf("%q becomes %q, want %q", given, public.Store.NATS.URL, want)
		}
		if cfg.Store.NATS.URL != given {
			t.Errorf("%q was changed in the document itself", given)
		}
	}
}

// Whoever looks at a run sees which program its figures go to, and not what that program is told.
func TestShownHasNoArguments(t *testing.T) {
	cfg, err := LoadWith("", Override{Text: `sinks.command=[send, --key, s3cr3t]`})
	if err != nil {
		t.Fatal(err)
	}
	if text := string(cfg.Shown().YAML()); strings.Contains(text, "s3cr3t") || !strings.Contains(text, "send") {
		t.Errorf("shown is:\n%s", text)
	}
	if cfg.Sinks.Command[2] != "s3cr3t" {
		t.Error("the document itself was changed")
	}
}

// The way in which other programs name an element of a list is refused with the way that works here.
func TestIndexedOverrides(t *testing.T) {
	_, err := Load("", "engines[0].name=a")
	if said := errorText(err); !strings.Contains(said, "did you mean engines.0.name?") {
		t.Error(said)
	}
	if _, err := Load("", "engines.0.name=a"); err != nil {
		t.Error(err)
	}
}
