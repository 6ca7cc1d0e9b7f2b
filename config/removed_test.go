package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// A run that an earlier version recorded is read without the keys that are gone, and a document of a user is not.
func TestRemovedKeysOfRecordedRuns(t *testing.T) {
	const text = "control: {target: 2, objective: throughput}\n"
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	loaded, err := LoadRecorded(path)
	if err != nil || !loaded.Controlled() || strings.Contains(string(loaded.YAML()), "objective") {
		t.Errorf("a recorded document: %v\n%s", err, loaded.YAML())
	}
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "control.objective: was removed") {
		t.Errorf("a user's document: %v", err)
	}
	if _, err := ParseRecorded("a trace", []byte("control: {objectives: throughput}")); err == nil {
		t.Error("a recorded document may have any key")
	}
}

// A removed key is no key of the schema, or its error would never be seen.
func TestRemovedKeysAreGone(t *testing.T) {
	for key, why := range removed {
		if _, _, err := locate(key, reflect.ValueOf(&Config{}).Elem()); err == nil || why == "" {
			t.Errorf("%s is a key, or has no reason (%q)", key, why)
		}
	}
}
