package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// cellDocument is a document with engines of these entries, each with what is said in it.
func cellDocument(store string, entries ...string) string {
	text := "model: {path: m}\nrollout: {concurrency: 8}\nenvironment: {kind: tasks, tasks: {file: t.jsonl}}\n" + store + "engines:\n"
	for i, e := range entries {
		text += fmt.Sprintf("  - {kind: vllm, url: 'http://node%d:8000', slots: %d%s}\n", i, 8/len(entries), e)
	}
	return text
}

const played = "environment: {kind: tasks, tasks: {file: t.jsonl}}"

const clustered = "store: {nats: {url: 'nats://broker:4222'}}\n"

// TestCells: the cells of a document are numbered in the order in which it names them.
func TestCells(t *testing.T) {
	for name, test := range map[string]struct {
		document string
		cells    []string
		numbers  []int
	}{
		"none":       {cellDocument("", "", ""), nil, nil},
		"mixed":      {cellDocument(clustered, ", cell: rack-2", "", ", cell: b", ", cell: rack-2"), []string{"rack-2", "b"}, []int{1, 0, 2, 1}},
		"listening":  {cellDocument("store: {nats: {listen: '10.0.0.5:4222'}}\n", ", cell: b"), []string{"b"}, []int{1}},
		"everywhere": {cellDocument("store: {nats: {listen: '[::]:4222', url: 'nats://plane:4222'}}\n", ", cell: b"), []string{"b"}, []int{1}},
		"ranged":     {strings.ReplaceAll(cellDocument(clustered, ", cell: 'rack-{1..2}'"), "http://node0", "http://node{1..2}"), []string{"rack-1", "rack-2"}, []int{1, 2}},
	} {
		parsed, err := Parse("test", []byte(strings.ReplaceAll(test.document, "slots: 8, cell: 'rack-{", "slots: 4, cell: 'rack-{")))
		if err != nil {
			t.Fatal(err)
		}
		c := parsed.WithDefaults()
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		rules := c.LoopConfig()
		if got := c.Cells(); !slices.Equal(got, test.cells) || !slices.Equal(rules.EngineCells, test.numbers) || rules.StaysInCell != (test.cells != nil) {
			t.Errorf("%s: cells %v and %v, which rollouts stay in: %t; want %v and %v", name, got, rules.EngineCells, rules.StaysInCell, test.cells, test.numbers)
		}
	}
}

// TestBadCells: each engine that cannot be of a cell is refused, with what to do.
func TestBadCells(t *testing.T) {
	for name, test := range map[string]struct{ document, want, instead string }{
		"upper case":      {cellDocument(clustered, ", cell: Rack"), `"Rack" is no name of a cell`, "lower-case letters"},
		"a dash at first": {cellDocument(clustered, ", cell: '-b'"), "is no name of a cell", "dashes between them"},
		"a dot":           {cellDocument(clustered, ", cell: 'a.b'"), "is no name of a cell", "lower-case letters"},
		"embedded":        {clustered + "engines: [{slots: 8, cell: b}]\n", "is said of an embedded engine", "leave it out"},
		"no broker":       {cellDocument("", ", cell: b"), "cannot be reached", "store.nats.url"},
		"distributed":     {strings.ReplaceAll(cellDocument(clustered, ", cell: b, weights: distributed"), "vllm", "sglang"), "in a collective", "engines.0.weights disk"},
		"stages":          {cellDocument(clustered, ", cell: b, stages: 2"), "engine with stages", "leave out engines.0.stages"},
	} {
		err := refusalOf(test.document)
		if err == nil || strings.Count(err.Error(), "engines.0.cell") != 1 || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), test.instead) {
			t.Errorf("%s: %v, want %q and %q", name, err, test.want, test.instead)
		}
	}
}

// TestListens: a server inside the process that takes cells in is there for cells, at an address that they reach.
func TestListens(t *testing.T) {
	listen := func(rest string) string { return "store: {nats: {listen: " + rest + "}}\n" }
	for name, test := range map[string]struct{ document, want, instead string }{
		"no port":      {cellDocument(listen("plane"), ", cell: b"), `store.nats.listen: "plane" is no address`, "HOST:PORT"},
		"any port":     {cellDocument(listen("'plane:0'"), ", cell: b"), `store.nats.listen: "plane:0" is no address`, "HOST:PORT"},
		"no cells":     {cellDocument(listen("'plane:4222'"), ""), "store.nats.listen", "engines.*.cell"},
		"everywhere":   {cellDocument(listen("':4222'"), ", cell: b"), "store.nats.url", "nats://HOST:4222"},
		"credentials":  {cellDocument(listen("'plane:4222', credentials: x"), ", cell: b"), "store.nats.credentials", "leave it out"},
		"certificates": {cellDocument(listen("'plane:4222', tls_ca: x"), ", cell: b"), "store.nats.tls_ca", "leave it out"},
		"replicas":     {cellDocument(listen("'plane:4222', replicas: 3"), ", cell: b"), "store.nats.replicas", "1, or"},
	} {
		if err := refusalOf(test.document); err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), test.instead) {
			t.Errorf("%s: %v, want %q and %q", name, err, test.want, test.instead)
		}
	}
	parsed, err := Parse("test", []byte(cellDocument(listen("'plane:4222'"), ", cell: b")))
	if err != nil {
		t.Fatal(err)
	}
	if n := parsed.WithDefaults().Store.NATS; n.URL != "nats://plane:4222" || !n.Inside() {
		t.Errorf("a server that listens is at %q, inside: %t", n.URL, n.Inside())
	}
}

func refusalOf(document string) error {
	parsed, err := Parse("test", []byte(document))
	if err == nil {
		err = parsed.WithDefaults().Validate()
	}
	return err
}

// TestNotInCells: what a cell of another process does not carry yet is refused by its key.
func TestNotInCells(t *testing.T) {
	openenv := strings.Replace(cellDocument(clustered, ", cell: b"), played, "environment: {kind: openenv, openenv: {url: 'http://e:8000'}, verifier: {kind: none}}", 1)
	if err := refusalOf(openenv); err != nil {
		t.Errorf("an OpenEnv server: %v", err)
	}
	for key, document := range map[string]string{
		"environment.tasks.settled_after": strings.Replace(cellDocument(clustered, ", cell: b"), "t.jsonl", "t.jsonl, settled_after: 9", 1),
	} {
		if err := refusalOf(document); err == nil || !strings.Contains(err.Error(), key) || !strings.Contains(err.Error(), "or no engines.*.cell") {
			t.Errorf("%s: %v", key, err)
		}
		if err := refusalOf(strings.ReplaceAll(document, ", cell: b", "")); err != nil {
			t.Errorf("%s without a cell: %v", key, err)
		}
	}
}

// fleetOfCells is a document with a fleet whose engine has a cell.
func fleetOfCells(fleet string) string {
	return "model: {path: m}\n" + played + "\n" + clustered + "engines: [{kind: vllm, slots: 8, cell: 'c-{index}'}]\nfleet: {driver: process, most: 2, command: [vllm, '{port}']" + fleet + "}\n"
}

// TestFleetOfCells: cells are named by the number of the engine that a fleet starts, and a fleet says where they find it.
func TestFleetOfCells(t *testing.T) {
	parsed, err := Parse("test", []byte(fleetOfCells(", port: 18000, cell_command: [headway, cell, '{cell}', run.yaml]")))
	if err != nil {
		t.Fatal(err)
	}
	c := parsed.WithDefaults()
	if err := c.Validate(); err != nil || !slices.Equal(c.Cells(), []string{"c-0", "c-1"}) || c.EngineURL(1, nil) != "http://127.0.0.1:18001" {
		t.Errorf("%v, cells %v", err, c.Cells())
	}
	kubernetes := "fleet: {driver: kubernetes, workload: statefulset/e, most: 2, cell_command: [headway]}\n"
	for name, test := range map[string]struct{ document, want, instead string }{
		"free ports":   {fleetOfCells(""), "fleet.port: is missing", "a port of this machine"},
		"every alike":  {fleetOfCells(", port: 18000, cell_command: [headway, cell, b]"), "fleet.cell_command: a list starts every cell alike", "{cell}"},
		"no program":   {fleetOfCells(", port: 18000, cell_command: ['', '{cell}']"), "fleet.cell_command: a list names no program", "headway, cell"},
		"no cell":      {strings.Replace(fleetOfCells(", cell_command: [headway, '{cell}']"), ", cell: 'c-{index}'", "", 1), "fleet.cell_command: a list starts cells, and no engine is of one", "engines.*.cell"},
		"other driver": {"model: {path: m}\n" + played + "\n" + clustered + "engines: [{kind: vllm, slots: 8, url: 'http://e-{index}', cell: b}]\n" + kubernetes, "fleet.cell_command: a list is of driver process", "leave it out"},
		"no fleet":     {cellDocument(clustered, ", cell: 'c-{index}'"), "engines.0.cell: \"c-{index}\" is no name of a cell", "lower-case letters"},
	} {
		if err := refusalOf(test.document); err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), test.instead) {
			t.Errorf("%s: %v, want %q and %q", name, err, test.want, test.instead)
		}
	}
}
