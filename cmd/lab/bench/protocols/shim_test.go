package protocols

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// shimAlone are the words of examples/hf_shim that SGLang 0.5.23 does not have, each with its reason.
var shimAlone = map[string]string{
	"GET /openapi.json": framework, "GET /metrics": mounted, "GET /steps": "the log of steps, for the tests alone",
	"GET /get_load": "older releases", "GET /get_weight_version": "older releases",
}

// TestShim holds the routes and fields of the shim against the newest SGLang in the folder HEADWAY_WHEELS.
func TestShim(t *testing.T) {
	folder := os.Getenv("HEADWAY_WHEELS")
	if folder == "" {
		t.Skip("HEADWAY_WHEELS is not set: make test-protocols downloads released wheels and names their folder there")
	}
	found, _ := filepath.Glob(filepath.Join(folder, "sglang-0.5.23-*.whl"))
	if len(found) != 1 {
		t.Fatalf("%d wheels of SGLang 0.5.23 in %s, want one", len(found), folder)
	}
	routes := read(t, found[0], "sglang.srt.entrypoints")
	text, err := exec.CommandContext(t.Context(), "python3", "shim.py", "../../../../examples/hf_shim/src/hf_shim/routes.py").Output()
	if err != nil {
		t.Fatal(err)
	}
	var shim map[string][]string
	if err := json.Unmarshal(text, &shim); err != nil || len(shim) < 20 {
		t.Fatalf("%d routes of the shim: %v", len(shim), err)
	}
	var alone []string
	for name, fields := range shim {
		original, there := routes[name]
		if !there {
			alone = append(alone, name)
			continue
		}
		for _, field := range fields {
			if _, has := original.Fields[field]; !has {
				alone = append(alone, name+" "+field)
			}
		}
	}
	for _, word := range alone {
		if shimAlone[word] == "" {
			t.Errorf("the shim takes %s, which SGLang does not have", word)
		}
	}
	for word := range shimAlone {
		if !slices.Contains(alone, word) {
			t.Errorf("%s is listed, and is no word of the shim alone", word)
		}
	}
}
