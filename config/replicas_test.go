package config

import (
	"fmt"
	"strings"
	"testing"
)

// One entry of engines stands for several: each is named, addressed and sized as an entry of its own would be.
func TestAnEntryStandsForSeveralEngines(t *testing.T) {
	for _, c := range []struct {
		name, document string
		sets           []string
		want           string // name url slots of each
	}{
		{"count", "engines: [{count: 3, slots: 4}]", nil, "engine-0  4, engine-1  4, engine-2  4"},
		{"count by an override", "engines: [{slots: 4}]", []string{"engines.0.count=2"}, "engine-0  4, engine-1  4"},
		{"count taken back", "engines: [{count: 2, slots: 4}]", []string{"engines.0.count=null"}, "engine-0  4"},
		{"count of one", "engines: [{count: 1, name: big, slots: 4}]", nil, "big  4"},
		{"slots of several entries", "engines: [{count: 2}, {slots: 8}]\nrollout: {concurrency: 24}", nil, "engine-0  8, engine-1  8, engine-2  8"},
		{"name", "engines: [{slots: 1}, {name: big, count: 2, slots: 4}]", nil, "engine-0  1, big-0  4, big-1  4"},
		{"range", "engines: [{kind: vllm, url: 'http://node-{1..3}:8000', slots: 4}]", nil,
			"engine-0 http://node-1:8000 4, engine-1 http://node-2:8000 4, engine-2 http://node-3:8000 4"},
		{"range and count", "engines: [{kind: vllm, url: 'http://a:{8000..8001}', count: 2, slots: 4}]", nil, "engine-0 http://a:8000 4, engine-1 http://a:8001 4"},
		{"zeros", "engines: [{kind: vllm, name: n, url: 'http://node-{08..11}', slots: 4}]", nil,
			"n-08 http://node-08 4, n-09 http://node-09 4, n-10 http://node-10 4, n-11 http://node-11 4"},
		{"two ranges", "engines: [{kind: vllm, name: n, url: 'http://h{1..2}:{80..81}', slots: 4}]", nil,
			"n-1-80 http://h1:80 4, n-1-81 http://h1:81 4, n-2-80 http://h2:80 4, n-2-81 http://h2:81 4"},
		{"range in the name", "engines: [{kind: vllm, name: 'r{0..1}x', url: 'http://h{7..8}', slots: 4}]", nil, "r0x http://h7 4, r1x http://h8 4"},
		{"range of one", "engines: [{kind: vllm, name: n, url: 'http://h{7..7}', slots: 4}]", nil, "n http://h7 4"},
		{"fleet", "engines: [{kind: vllm, count: 2, slots: 4, url: 'http://e-{index}.e'}]\nfleet: {driver: kubernetes, workload: statefulset/e, most: 3}", nil,
			"engine-0 http://e-{index}.e 4, engine-1 http://e-{index}.e 4, engine-2 http://e-{index}.e 4"},
		{"named fleet", "engines: [{name: e, count: 2, slots: 4}]\nfleet: {most: 3}", nil, "e-0  4, e-1  4, e-2  4"},
	} {
		if strings.Contains(c.document, "kind: vllm") {
			c.document += "\nmodel: {path: m}\n"
		}
		raw, err := Parse("run.yaml", []byte(c.document))
		if err == nil {
			raw, err = raw.Set(c.sets...)
		}
		var resolved Config
		if err == nil {
			resolved, err = raw.Resolve()
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		var have []string
		for _, e := range resolved.Engines {
			have = append(have, fmt.Sprintf("%s %s %d", e.Name, e.URL, e.Slots))
		}
		if got := strings.Join(have, ", "); got != c.want {
			t.Errorf("%s: %s\nwant %s", c.name, got, c.want)
		}
		again, err := resolved.Resolve()
		if err != nil || !again.Equal(resolved) {
			t.Errorf("%s: resolved twice it differs, %v:\n%s", c.name, err, again.YAML())
		}
		printed, err := Parse("printed", resolved.YAML())
		if err == nil {
			printed, err = printed.Resolve()
		}
		if err != nil || !printed.Equal(resolved) {
			t.Errorf("%s: printed and read it differs, %v:\n%s", c.name, err, resolved.YAML())
		}
	}
}

// Texts beside the address have the numbers that belong to it, and each engine has arguments of its own.
func TestRangesOfOneEntryGoTogether(t *testing.T) {
	raw, err := Parse("run.yaml", []byte(`model: {path: m}
engines:
  - kind: llamacpp
    url: http://localhost:{8080..8081}
    slots: 4
    command: [llama-server, --port, "{8080..8081}", -m, "{weights}/m.gguf", --override, '{"a": "../b"}']
`))
	if err != nil {
		t.Fatal(err)
	}
	resolved, err := raw.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range resolved.Engines {
		want := fmt.Sprintf(`llama-server --port %d -m {weights}/m.gguf --override {"a": "../b"}`, 8080+i)
		if have := strings.Join(e.Command, " "); have != want {
			t.Errorf("engine %d is started by %s, want %s", i, have, want)
		}
	}
	if have := strings.Join(raw.Engines[0].Command, " "); len(resolved.Engines) != 2 || !strings.Contains(have, "{8080..8081}") {
		t.Errorf("%d engines, and the document that they come from has %s", len(resolved.Engines), have)
	}
}

// A mistake in an entry that stands for several engines is said once, at the entry.
func TestMistakesOfAnEntryForSeveral(t *testing.T) {
	const server = "model: {path: m}\nengines:\n  - {kind: vllm, slots: 4, "
	for _, c := range []struct{ document, want string }{
		{"engines:\n  - {count: 0}", "2:13: engines.0.count: 0 is not allowed (allowed: a whole number at least 1 and at most 4096)"},
		{"engines:\n  - {count: two}", `2:13: engines.0.count: "two" is not allowed here`},
		{"engines:\n  - {count: 4000}\n  - {count: 97}", "3:13: engines.1.count: 97 makes 4097 engines with the entries before (allowed: at most 4096)"},
		{server + "url: 'http://n{1..5}', count: 4}", "engines.0.count: 4 is not the 5 engines that the range of url stands for (allowed: 5, or leave it out)"},
		{server + "url: 'http://n{4..1}'}", "has a range that counts down"},
		{server + "url: 'http://n{1..9}:{1000..9999}'}", "3:33: engines.0.url: \"http://n{1..9}:{1000..9999}\" stands for more than 4096 engines"},
		{server + "url: 'http://n{a..c}'}", "a range of whole numbers"},
		{server + "url: 'n{1..3}:8000'}", `3:33: engines.0.url: "n{1..3}:8000" is not the address of a server`},
		{server + "url: 'http://n:8000', count: 3}", "is one server, and its entry stands for several engines (allowed: a range, such as"},
		{server + "url: 'http://n{1..3}', weights_dir: '/w/{1..4}'}", `engines.0.weights_dir: "/w/{1..4}" stands for 4 engines, and url for 3 (allowed: ranges of as many numbers)`},
		{server + "url: 'http://n{1..3}'}\n  - {kind: vllm, slots: 4, url: 'http://n{3..5}'}", `4:33: engines.1.url: "http://n{3..5}" is the server of engine-2 already`},
		{server + "url: 'http://n-{index}', count: 3}", "has words of a fleet, and there is none"},
		{server + "url: 'http://n{1..3}', weights: restart}", "engines.0.weights: \"restart\" is no way by which vllm takes new weights"},
		{"engines: [{count: 2}, {name: engine-1}]", `1:30: engines.1.name: "engine-1" is the name of another engine`},
		{"engines: [{count: 2, name: a}, {name: a, count: 2}]", `1:39: engines.1.name: "a" makes "a-0", which is the name of another engine (allowed: names of their own)`},
		{"engines: [{count: 3, slots: 5}]\nrollout: {concurrency: 16}", "1:10: engines: have 15 slots in all, but rollout.concurrency is 16"},
		{"engines: [{count: 3, decode_step_s: -5}]", "1:37: engines.0.decode_step_s: -5 is not allowed"},
	} {
		raw, err := Parse("run.yaml", []byte(c.document))
		if err == nil {
			_, err = raw.Resolve()
		}
		if said := errorText(err); !strings.Contains(said, c.want) || strings.Count(said, "\n") > 0 {
			t.Errorf("%s\nis refused with\n%s\nwant\n%s", c.document, said, c.want)
		}
	}
}

// A warning about an engine names its entry.
func TestWarningsNameTheEntry(t *testing.T) {
	c := Config{Engines: []Engine{{Slots: 1}, {Count: 2, Slots: 1}}}.WithDefaults()
	var found []Warning
	c.warnInto(&found)("engines.2.slots", "are few")
	if len(found) != 1 || found[0].Key != "engines.1.slots" {
		t.Errorf("%+v", found)
	}
}
