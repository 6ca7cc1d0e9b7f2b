package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// One server under two names is one server.
func TestServersUnderTwoNames(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"http://127.0.0.1:30311", "http://localhost:30311/", true},
		{"http://127.0.0.1:30311", "http://[::1]:30311", true},
		{"http://0.0.0.0:30311", "http://127.0.0.2:30311", true},
		{"HTTP://Node:8000", "http://node:8000", true},
		{"http://node", "http://node.:80", true},
		{"https://node", "https://node:443/", true},
		{"http://node:8000", "http://node:8001", false},
		{"http://node1:8000", "http://node2:8000", false},
		{"https://node", "http://node", false},
	} {
		document := fmt.Sprintf("model: {path: m}\nengines: [{kind: vllm, url: %q, slots: 1}, {kind: vllm, url: %q, slots: 1}]\n", c.a, c.b)
		parsed, err := Parse("test", []byte(document))
		if err == nil {
			err = parsed.WithDefaults().Validate()
		}
		if same := err != nil && strings.Contains(err.Error(), "is the server of engine-0 already"); same != c.same {
			t.Errorf("%s and %s: %v, want the same: %t", c.a, c.b, err, c.same)
		}
	}
}

// A kind of server is asked for new weights by ways alone that its dialect has.
func TestDeliveriesOfKinds(t *testing.T) {
	for kind, refused := range map[string]string{"sglang": "restart", "llamacpp": "lora", "openai": "disk", "vllm": "restart"} {
		document := fmt.Sprintf("model: {path: m}\nengines: [{kind: %s, url: 'http://a:1', slots: 1, weights: %s}]\n", kind, refused)
		parsed, err := Parse("test", []byte(document))
		if err == nil {
			err = parsed.WithDefaults().Validate()
		}
		if err == nil || !strings.Contains(err.Error(), "is no way by which "+kind+" takes new weights") {
			t.Errorf("%s with weights %s: %v", kind, refused, err)
		}
	}
}

// An address that cannot be is said with the other mistakes of its document, not once they are mended.
func TestAddressesAreCheckedWithOtherMistakes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte("engines:\n  - {kind: vllmm, url: \"127.0.0.1:31801\", slot: 4}\ngateway: {template: host}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Load(path)
	for _, want := range []string{"engines.0.kind", "engines.0.slot", "engines.0.url", "gateway.template"} {
		if err == nil || strings.Count(err.Error(), want) != 1 {
			t.Errorf("want one mistake of %s in: %v", want, err)
		}
	}
}
