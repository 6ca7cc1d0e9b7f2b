package golden_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"flag"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headway-rl/headway/explain/foreign"
)

var update = flag.Bool("update", false, "write the frameworks' files anew, by the Python that HEADWAY_LOGS_PYTHON names (make logs)")

// generatorPython is a Python with the packages of generate/requirements.txt.
const generatorPython = "HEADWAY_LOGS_PYTHON"

// archive is where a framework's files are kept, with the truth beside them.
func archive(framework string) string {
	return filepath.Join("testdata", framework+".tar.gz")
}

// generate has the real libraries write what a framework would have logged of a run.
func generate(t *testing.T, python string, of truth) string {
	t.Helper()
	dir := t.TempDir()
	text, err := json.Marshal(of)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "truth.json"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, "-m", "generate", filepath.Join(dir, "truth.json"), dir)
	// No HOME, no user: nothing of this machine can come into a file.
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "PYTHONDONTWRITEBYTECODE=1", "TZ=UTC", "USER=user"}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	return dir
}

// pack writes a folder as an archive that depends on nothing but its files' names and contents.
func pack(t *testing.T, dir, path string) {
	t.Helper()
	var packed bytes.Buffer
	compressed, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	files := tar.NewWriter(compressed)
	for _, name := range filesOf(t, dir) {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := files.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text)), ModTime: time.Unix(0, 0), Format: tar.FormatUSTAR}); err != nil {
			t.Fatal(err)
		}
		if _, err := files.Write(text); err != nil {
			t.Fatal(err)
		}
	}
	if err := files.Close(); err != nil {
		t.Fatal(err)
	}
	if err := compressed.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, packed.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// filesOf lists a folder's files in order, by their paths inside it.
func filesOf(t *testing.T, dir string) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			names = append(names, strings.TrimPrefix(path, dir+string(filepath.Separator)))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

// unpack lays an archive's files into a folder of the test, and returns it with the truth.
func unpack(t *testing.T, framework string) (string, truth) {
	t.Helper()
	dir := t.TempDir()
	packed, err := os.Open(archive(framework))
	if err != nil {
		t.Fatalf("%v: make logs writes it", err)
	}
	defer packed.Close()
	uncompressed, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	files := tar.NewReader(uncompressed)
	for {
		header, err := files.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(files)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, header.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir, truthOf(t, dir)
}

// truthOf takes the truth out of a folder: an importer sees only the files.
func truthOf(t *testing.T, dir string) truth {
	t.Helper()
	path := filepath.Join(dir, "truth.json")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out truth
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	return out
}

// withRollouts are the frameworks whose files hold single rollouts.
var withRollouts = []string{"areal", "pipelinerl", "prime-rl"}

// keepTruth leaves out of a folder's truth what no test compares: single rollouts that no file has.
func keepTruth(t *testing.T, dir, framework string) {
	t.Helper()
	of := truthOf(t, dir)
	if !slices.Contains(withRollouts, framework) {
		of.Rollouts = nil
	}
	text, err := json.Marshal(of)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "truth.json"), text, 0o644); err != nil {
		t.Fatal(err)
	}
}

// sameLogs holds what is read of one folder to what is read of another.
func sameLogs(t *testing.T, fresh, kept string) {
	t.Helper()
	got, err := foreign.Read(context.Background(), []string{fresh}, foreign.Options{})
	if err != nil {
		t.Fatal(err)
	}
	want, err := foreign.Read(context.Background(), []string{kept}, foreign.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Settings != want.Settings || len(got.Series) != len(want.Series) || len(got.Rollouts) != len(want.Rollouts) {
		t.Fatalf("%d steps, %d rollouts, settings %+v; of the kept files %d, %d, %+v: make logs", len(got.Series), len(got.Rollouts), got.Settings, len(want.Series), len(want.Rollouts), want.Settings)
	}
	for i := range got.Series {
		for _, n := range foreign.Notions {
			a, b := *n.At(&got.Series[i]), *n.At(&want.Series[i])
			if a.Known() != b.Known() || !near(a.Value, b.Value, 1e-6*max(1, a.Value)) {
				t.Fatalf("step %d: %s is %+v, of the kept files %+v: make logs", got.Series[i].Step, n.Name, a, b)
			}
		}
	}
}

// The files that tests read are what the real libraries write of the same runs today.
func TestLogsAreCurrent(t *testing.T) {
	python := os.Getenv(generatorPython)
	switch {
	case *update && python == "":
		t.Fatalf("-update needs %s", generatorPython)
	case python == "":
		t.Skipf("%s names no Python with generate/requirements.txt (make logs makes one)", generatorPython)
	}
	for _, run := range truthRuns {
		t.Run(run.framework, func(t *testing.T) {
			dir := generate(t, python, simulateTruth(t, run.framework, run.document))
			if *update {
				keepTruth(t, dir, run.framework)
				pack(t, dir, archive(run.framework))
				return
			}
			fresh := truthOf(t, dir)
			kept, known := unpack(t, run.framework)
			if got, want := filesOf(t, dir), filesOf(t, kept); !slices.Equal(got, want) {
				t.Fatalf("files %q, kept are %q: make logs", got, want)
			}
			if got, want := len(fresh.Steps), len(known.Steps); got != want {
				t.Fatalf("%d steps, kept are %d: make logs", got, want)
			}
			sameLogs(t, dir, kept)
			for i := range fresh.Steps {
				if fresh.Steps[i].End != known.Steps[i].End || fresh.Steps[i].Staleness != known.Steps[i].Staleness {
					t.Fatalf("step %d is %+v, kept is %+v: make logs", i+1, fresh.Steps[i], known.Steps[i])
				}
			}
		})
	}
}
