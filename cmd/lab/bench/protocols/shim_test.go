package protocols

import (
	"slices"
	"testing"
)

// shimAlone are the words of examples/hf_shim that SGLang 0.5.23 does not have, each with its reason.
var shimAlone = map[string]string{
	"GET /openapi.json": framework, "GET /metrics": mounted, "GET /steps": "the log of steps, for the tests alone",
	"GET /get_load": "older releases", "GET /get_weight_version": "older releases",
}

// shimDefaults are those that the routes of SGLang leave to what they call, each with the value there.
var shimDefaults = map[string]string{"POST /tokenize add_generation_prompt": "None leaves it to the request of a chat, which adds one"}

// TestShim holds the routes, fields and defaults of the shim against the newest SGLang in the folder HEADWAY_WHEELS.
func TestShim(t *testing.T) {
	routes := read(t, released(t, "sglang-0.5.23"), "sglang.srt.entrypoints")
	var shim map[string]struct {
		Fields   []string
		Defaults map[string]any
	}
	python(t, &shim, "shim.py", "../../../../examples/hf_shim/src/hf_shim/routes.py")
	if len(shim) < 20 {
		t.Fatalf("%d routes of the shim", len(shim))
	}
	var alone []string
	defaults := 0
	for name, said := range shim {
		original, there := routes[name]
		if !there {
			alone = append(alone, name)
			continue
		}
		for _, field := range said.Fields {
			if _, has := original.Fields[field]; !has {
				alone = append(alone, name+" "+field)
			}
		}
		for field, value := range said.Defaults {
			if f, has := original.Fields[field]; has && !f.Required {
				defaults++
				if f.Default != value && shimDefaults[name+" "+field] == "" {
					t.Errorf("%s: without %s the shim takes %v, and SGLang %v", name, field, value, f.Default)
				}
			}
		}
	}
	if defaults < 10 {
		t.Errorf("%d defaults were compared: does shim.py read them?", defaults)
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
