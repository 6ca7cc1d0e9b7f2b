package checker

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/headway-rl/headway/cmd/lab/world/history"
)

// sampler is that of the engines in the recorded histories.
var sampler = Sampler{Vocabulary: 64, EOS: 4, Length: 12, Start: "as started"}

// read returns a recorded history.
func read(tb testing.TB, dir string) ([]history.Line, history.Ending) {
	tb.Helper()
	f, err := os.Open(filepath.Join(dir, "history.ndjson.zst"))
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	d, err := zstd.NewReader(f)
	if err != nil {
		tb.Fatal(err)
	}
	defer d.Close()
	var lines []history.Line
	for dec := json.NewDecoder(d); ; {
		var l history.Line
		if err := dec.Decode(&l); err == io.EOF {
			return lines, history.Ending{Dir: dir, Finished: true}
		} else if err != nil {
			tb.Fatal(err)
		}
		lines = append(lines, l)
	}
}

func TestCleanHistoryHasNoViolation(t *testing.T) {
	lines, ending := read(t, "testdata/clean")
	for _, v := range Check(sampler, lines, ending) {
		t.Errorf("line %d: %s: %s", v.Line, v.Rule, v.Text)
	}
}

func BenchmarkCheck(b *testing.B) {
	lines, ending := read(b, "testdata/clean")
	b.ReportAllocs()
	for b.Loop() {
		Check(sampler, lines, ending)
	}
}
