package lint

import (
	"go/ast"
	"strings"
	"testing"
)

// decodes are the functions that take bytes apart, by package and name.
var decodes = map[string][]string{
	"encoding/json": {"Unmarshal", "NewDecoder"}, "encoding/csv": {"NewReader"}, "encoding/binary": {"LittleEndian", "BigEndian"},
	"github.com/goccy/go-yaml": {"Unmarshal", "UnmarshalWithOptions", "NewDecoder"}, "github.com/BurntSushi/toml": {"Decode", "NewDecoder"}, "github.com/parquet-go/parquet-go": {"OpenFile", "NewReader"},
}

// unfuzzed are the rooms that take bytes apart and have no fuzz target, each with the reason.
var unfuzzed = map[string]string{
	"app/calibrate":       "lines of prompts that the operator names, by encoding/json alone",
	"app/origin":          "an address that this program wrote",
	"app/parts":           "the shape of a model that this program kept",
	"app/plane":           "notes of this run's own writers, by encoding/json alone",
	"app/player":          "records of this program's own log, which FuzzLog in env/episode/player reads",
	"app/probe":           "a task's answer, which FuzzLines in env/taskset reads",
	"app/record":          "lines of this program's own metrics and notes",
	"app/sink":            "answers of the tracking server that the operator names, by encoding/json alone",
	"app/sink/spans":      "a hash of the run's own name",
	"cmd/headway":         "answers of the control plane that the operator names, by encoding/json alone",
	"env/sandbox/host":    "the boot time and start times of Linux",
	"env/taskset/columns": "Parquet, which FuzzParquet in env/taskset changes",
	"explain/dashboard":   "lines of this program's own samples, and tiles that it made",
	"explain/diagnosis":   "a note of a trace, whose lines FuzzReader in loop/trace reads",
	"observe/attribution": "a part of a snapshot, which FuzzState in drive/live changes",
	"observe/metrics":     "a part of a snapshot, which FuzzState in drive/live changes",
	"observe/steps":       "lines of this program's own metrics",
	"observe/track":       "a part of a snapshot, which FuzzState in drive/live changes",
	"env/remote":          "numbers that it hashes, of a request that FuzzDecodeJSON in api has read",
	"predict/reproduce":   "tables that are part of this program",
	"predict/forecast":    "a note of a trace, whose lines FuzzReader in loop/trace reads",
	"predict/experiment":  "rows that this program wrote, before it goes on behind them",
}

// Every room that takes bytes apart has a fuzz target, or a reason here. What a target holds is its own to say; this finds the
// room whose author forgot one.
func TestDecodersAreFuzzed(t *testing.T) {
	takes, fuzzed := map[string]string{}, map[string]bool{}
	for _, f := range sources(t) {
		if strings.HasSuffix(f.room, "test") || within(f.room, "cmd/lab", "internal/lint") {
			continue
		}
		if f.test {
			fuzzed[f.room] = fuzzed[f.room] || strings.Contains(string(f.text), "\nfunc Fuzz")
			continue
		}
		if at := f.decoder(t); at != "" {
			takes[f.room] = at
		}
	}
	for room, at := range takes {
		if _, excused := unfuzzed[room]; !fuzzed[room] && !excused {
			t.Errorf("%s takes bytes apart (%s) and %s has no fuzz target: write one beside its tests, or say in unfuzzed why no stranger's bytes come here", room, at, room)
		}
	}
	for room := range unfuzzed {
		if takes[room] == "" || fuzzed[room] {
			t.Errorf("unfuzzed has %s, which takes no bytes apart or has a fuzz target: remove it", room)
		}
	}
}

// decoder is the place of a call that takes bytes apart, empty for none.
func (f file) decoder(t *testing.T) (at string) {
	names := f.names(t)
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		selected, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if of, ok := selected.X.(*ast.Ident); ok {
			for _, name := range decodes[names[of.Name]] {
				if selected.Sel.Name == name {
					at = f.path + ": " + of.Name + "." + name
				}
			}
		}
		return true
	})
	return at
}
