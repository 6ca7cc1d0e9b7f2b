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
