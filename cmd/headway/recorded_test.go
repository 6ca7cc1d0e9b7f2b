package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headway-rl/headway/app/command"
	"github.com/headway-rl/headway/explain/compare"
	"github.com/klauspost/compress/zstd"
)

var recordedUpdate = flag.Bool("recorded.update", false, "write the outputs of testdata/recorded anew, instead of comparing with them")

// recordedDir has the recordings, an archive each, and recordedGolden what the program said of them.
const (
	recordedDir    = "testdata/recorded"
	recordedGolden = recordedDir + "/golden"
	archiveSuffix  = ".tar.zst"
)

// recordedCommands are command lines whose output a recording alone decides. RUN is its directory, DRAWING
// a file that the command writes and that counts as output.
var recordedCommands = map[string]string{
	"replay":     "replay RUN",
	"replayed":   "replay RUN --json --timeline DRAWING --timeline-from 2 --timeline-steps 3 --timeline-arrows all",
	"diagnose":   "diagnose RUN --full",
	"diagnosed":  "diagnose RUN --json",
	"resimulate": "resimulate RUN --json",
	"compare":    "compare RUN RUN --full",
	"compared":   "compare RUN RUN --json",
}

// recordedViews are what the pages of headway view ask for: the metrics of every step, made from the trace.
var recordedViews = []string{"info", "summary", "tracks", "queue", "moves", "series", "groups"}

// TestRecorded holds the program to what the one of testdata/recorded/README.md said of the same recordings.
func TestRecorded(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the last digits of the outputs are those of amd64, which does not fuse multiplications with additions")
	}
	golden, err := filepath.Abs(recordedGolden)
	if err != nil {
		t.Fatal(err)
	}
	archives, err := filepath.Glob(filepath.Join(recordedDir, "*"+archiveSuffix))
	if err != nil || len(archives) == 0 {
		t.Fatalf("no recordings: %v", err)
	}
	dir := t.TempDir()
	var names []string
	for _, path := range archives {
		name := strings.TrimSuffix(filepath.Base(path), archiveSuffix)
		names = append(names, name)
		unpack(t, path, filepath.Join(dir, name))
	}
	t.Setenv(command.ProgressEvery, "1h") // what the clock decides is not compared
	t.Chdir(dir)                          // so that outputs name a run alike everywhere
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			said := recordedOutputs(t, name)
			path := filepath.Join(golden, name+archiveSuffix)
			if *recordedUpdate {
				writeArchive(t, path, said)
				return
			}
			compareOutputs(t, readArchive(t, path), said)
		})
	}
}

// recordedOutputs is all that the program says of the recording of that name in the working directory.
func recordedOutputs(t *testing.T, name string) map[string][]byte {
	t.Helper()
	said := map[string][]byte{}
	for output, line := range recordedCommands {
		drawing := name + "." + output + ".json"
		code, stdout, stderr := headway(t, strings.Fields(strings.NewReplacer("RUN", name, "DRAWING", drawing).Replace(line))...)
		said[output] = fmt.Appendf(nil, "%s\nexit code %d\n%s", stdout, code, stderr)
		if !strings.Contains(line, "DRAWING") {
			continue
		}
		drawn, err := os.ReadFile(drawing)
		if err != nil {
			t.Fatalf("headway %s: %v\n%s", line, err, said[output])
		}
		said["timeline"] = drawn
	}
	said["metrics"] = recordedMetrics(t, name)
	shown, err := compare.Open(name, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	defer shown.Close()
	shown.Follow(t.Context())
	for _, view := range recordedViews {
		reply := httptest.NewRecorder()
		shown.Model().Data().ServeHTTP(reply, httptest.NewRequest("GET", "/api/v1/view/"+view, nil))
		said["view-"+view] = fmt.Appendf(reply.Body.Bytes(), "\nstatus %d\n", reply.Code)
	}
	return said
}

// recordedMetrics is every figure that a recording measured of itself, also those that no command above prints.
func recordedMetrics(t *testing.T, name string) []byte {
	t.Helper()
	recording, sources, err := compare.Measure(t.Context(), name, nil)
	if err != nil {
		return fmt.Appendf(nil, "%v\n", err)
	}
	var text bytes.Buffer
	if err := printJSON(&text, []any{recording.Measured, recording.Ledger, sources}); err != nil {
		t.Fatal(err)
	}
	return text.Bytes()
}

// compareOutputs says where each output first differs from the one that is wanted.
func compareOutputs(t *testing.T, want, got map[string][]byte) {
	t.Helper()
	for _, output := range slices.Sorted(maps.Keys(want)) {
		if said, ok := got[output]; !ok {
			t.Errorf("%s is wanted, and was not made", output)
		} else if difference := firstDifference(string(want[output]), string(said)); difference != "" {
			t.Errorf("%s: %s", output, difference)
		}
	}
	for output := range got {
		if _, ok := want[output]; !ok {
			t.Errorf("%s is new: -recorded.update adds it", output)
		}
	}
}

// differenceContext is how much of a line is shown on either side of a difference, in bytes.
const differenceContext = 120

// firstDifference says where two texts first differ, in words; it is empty for equal ones.
func firstDifference(want, got string) string {
	if want == got {
		return ""
	}
	at := 0
	for at < min(len(want), len(got)) && want[at] == got[at] {
		at++
	}
	line := strings.Count(want[:at], "\n") + 1
	column := at - (strings.LastIndexByte(want[:at], '\n') + 1)
	return fmt.Sprintf("line %d, byte %d differs\nwant %s\ngot  %s", line, column+1, around(want, at), around(got, at))
}

// around is the part of a line that has the byte at a place.
func around(text string, at int) string {
	from := max(strings.LastIndexByte(text[:at], '\n')+1, at-differenceContext)
	to := len(text)
	if end := strings.IndexByte(text[at:], '\n'); end >= 0 {
		to = at + end
	}
	return fmt.Sprintf("%q", text[from:min(to, at+differenceContext)])
}

func TestFirstDifference(t *testing.T) {
	for _, c := range []struct{ want, got, said string }{
		{"a\nb", "a\nb", ""},
		{"a\nbcd\n", "a\nbxd\n", "line 2, byte 2 differs\nwant \"bcd\"\ngot  \"bxd\""},
		{"a\n", "a\nb", "line 2, byte 1 differs\nwant \"\"\ngot  \"b\""},
		{"", "b", "line 1, byte 1 differs\nwant \"\"\ngot  \"b\""},
	} {
		if said := firstDifference(c.want, c.got); said != c.said {
			t.Errorf("of %q and %q it says %q", c.want, c.got, said)
		}
	}
}

// readArchive reads the files of an archive.
func readArchive(t *testing.T, path string) map[string][]byte {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	plain, err := zstd.NewReader(file, zstd.WithDecoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	files := map[string][]byte{}
	for archive := tar.NewReader(plain); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err == nil {
			files[header.Name], err = io.ReadAll(archive)
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
}

// unpack writes the files of an archive to a new directory.
func unpack(t *testing.T, path, dir string) {
	t.Helper()
	for name, content := range readArchive(t, path) {
		to := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, content, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
}

// writeArchive writes files as an archive that the same files always give.
func writeArchive(t *testing.T, path string, files map[string][]byte) {
	t.Helper()
	var packed bytes.Buffer
	to, err := zstd.NewWriter(&packed, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	archive := tar.NewWriter(to)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		err = errors.Join(err, archive.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(files[name]))}))
		_, writeErr := archive.Write(files[name])
		err = errors.Join(err, writeErr)
	}
	if err = errors.Join(err, archive.Close(), to.Close(), os.MkdirAll(filepath.Dir(path), 0o755)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, packed.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}
