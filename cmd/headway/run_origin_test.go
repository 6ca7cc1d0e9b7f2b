package main

import (
	"bytes"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headway-rl/headway/app/origin"
	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/store/lock"
)

// traceText is a trace of one line, as a run of that source and document begins it.
func traceText(t *testing.T, source string, overrides ...string) string {
	t.Helper()
	cfg, err := config.Load("", overrides...)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	rules := parts.RunRules(cfg)
	rules.TrainerAsks = cfg.Trainer.Kind == "remote"
	if _, err := trace.NewWriter(&text, trace.Header{Program: "headway", Source: source, Loop: rules, Config: string(cfg.Public().YAML())}); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// folderOf makes a folder with files.
func folderOf(t *testing.T, dir string, files map[string]string) string {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// contentOf is all that a folder holds, by path.
func contentOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			out[path] = "a folder"
			return err
		}
		text, err := os.ReadFile(path)
		out[path] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// wantUnchanged compares a folder with what it held.
func wantUnchanged(t *testing.T, dir string, before map[string]string) {
	t.Helper()
	after := contentOf(t, dir)
	for path := range after {
		if _, there := before[path]; !there {
			t.Errorf("%s was written", path)
		} else if after[path] != before[path] {
			t.Errorf("%s was changed: %q, was %q", path, after[path], before[path])
		}
	}
	if len(after) < len(before) {
		t.Errorf("%d files and folders are left of %d", len(after), len(before))
	}
}

// A control plane's run is refused before anything of it is touched, whatever of it is left, and the
// words say how it is gone on with.
func TestRunResumesNoControlPlane(t *testing.T) {
	planes := traceText(t, "live", "trainer.kind=remote")
	embedded := traceText(t, "live")
	for name, files := range map[string]map[string]string{
		"all of it":                  {origin.AddressFile: "{}", "state/nats/lock": "1\n", "trace.ndjson.lock": "1\n", trace.FileName: planes},
		"everything embedded":        {origin.AddressFile: "{}", "state/nats/lock": "1\n", trace.FileName: embedded},
		"before its first step":      {"state/nats/lock": "1\n", trace.FileName: ""},
		"with a cluster":             {origin.AddressFile: "{}", trace.FileName: embedded},
		"without a trace":            {origin.AddressFile: "{}", "state/nats/lock": "1\n"},
		"a copy of its trace alone":  {trace.FileName: planes},
		"after a resume of long ago": {origin.AddressFile: "{}", "state/nats/lock": "1\n", "state/lock": "2\n", trace.FileName: planes},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			dir := folderOf(t, filepath.Join(folder, "plane"), files)
			before := contentOf(t, dir)
			code, _, stderr := headway(t, "run", "--resume", dir)
			want := "headway: " + dir + " is a control plane's run: headway serve made it, and headway run would break its log\n" +
				"  headway serve FILE --dir " + folder + " --name plane goes on with it, FILE being its document\n"
			if code != failure.ExitUsage || stderr != want {
				t.Errorf("exit %d\n%swant\n%s", code, stderr, want)
			}
			wantUnchanged(t, dir, before)
			if _, _, stderr := headway(t, "run", "--dir", folder, "--name", "plane"); !strings.Contains(stderr, "headway serve FILE --dir "+folder+" --name plane") {
				t.Errorf("run --name says\n%s", stderr)
			}
			wantUnchanged(t, dir, before)
		})
	}
}

// Whoever holds the trace of a directory writes it alone, even where the directory looks like a run's.
func TestRunRespectsAMirrorsLock(t *testing.T) {
	dir := folderOf(t, filepath.Join(t.TempDir(), "a"), map[string]string{"state/lock": "", trace.FileName: traceText(t, "live")})
	held, err := lock.Take(filepath.Join(dir, trace.FileName+".lock"), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Release()
	before := contentOf(t, dir)
	if code, _, stderr := headway(t, "run", "--resume", dir); code == failure.ExitDone || !strings.Contains(stderr, "is being written by process") {
		t.Errorf("exit %d: %s", code, stderr)
	}
	wantUnchanged(t, dir, before)
}

// A directory that is no control plane's is refused before it listens, and nothing is written to it.
func TestServeRefusesOthersDirectories(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close() // an address that is refused, by who tries to listen
	run := traceText(t, "live")
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"a run":                        {map[string]string{"state/lock": "1\n", trace.FileName: run}, "is a run of headway run: a control plane cannot go on with it\n  choose another --name, or go on with it by headway run --resume "},
		"a run that was served before": {map[string]string{"state/lock": "1\n", "state/nats/lock": "", trace.FileName: run}, "is a run of headway run"},
		"a copy of its trace alone":    {map[string]string{trace.FileName: run}, "is a run of headway run"},
		"a simulation":                 {map[string]string{trace.FileName: traceText(t, "simulation")}, "is a simulation"},
		"no trace":                     {map[string]string{trace.FileName: "one\ntwo\n"}, "is no Headway trace"},
		"no trace and no line":         {map[string]string{trace.FileName: "one"}, "is no Headway trace"},
		"a trace without its log":      {map[string]string{origin.AddressFile: "{}", trace.FileName: run}, "name the cluster that has the run's log (--nats)"},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			dir := folderOf(t, filepath.Join(folder, "a"), c.files)
			before := contentOf(t, dir)
			code, _, stderr := headway(t, "serve", "--dir", folder, "--name", "a", "--listen", taken.Addr().String())
			if code != failure.ExitUsage || !strings.Contains(stderr, c.want) || !strings.Contains(stderr, dir) {
				t.Errorf("exit %d, want %q in\n%s", code, c.want, stderr)
			}
			wantUnchanged(t, dir, before)
		})
	}
}

// A simulation's trace is no run to go on with.
func TestRunResumesNoSimulation(t *testing.T) {
	dir := folderOf(t, filepath.Join(t.TempDir(), "a"), map[string]string{trace.FileName: traceText(t, "simulation")})
	before := contentOf(t, dir)
	if code, _, stderr := headway(t, "run", "--resume", dir); code != failure.ExitUsage || !strings.Contains(stderr, "is a simulation: there is nothing to go on with") {
		t.Errorf("exit %d: %s", code, stderr)
	}
	wantUnchanged(t, dir, before)
}

// A file where a folder is expected, and the other way round, is said with its flag, before anything runs.
func TestFilesAndFoldersAreToldApart(t *testing.T) {
	folder := t.TempDir()
	folderOf(t, folder, map[string]string{
		"file":                                 "",
		filepath.Join("a", trace.FileName):     traceText(t, "live"),
		filepath.Join("s", origin.AddressFile): "{}",
	})
	t.Chdir(folder)
	before := contentOf(t, ".")
	for _, c := range []struct {
		arguments string
		want      string
	}{
		{"run --dir file", "--dir (store.dir) file: file is a file, and the folder of all runs is expected\n  name a folder"},
		{"run --dir file/runs", "--dir (store.dir) file/runs: file is a file"},
		{"serve --dir file", "--dir (store.dir) file: file is a file"},
		{"serve --name file --dir .", "file is a file, and --name is to be a run's directory"},
		{"compare a a --html s", "--html s is a folder, and a file to write is expected\n  name a new file, such as s/NAME"},
		{"compare a a --html file", "--html file: the file exists, and nothing is overwritten"},
		{"run a", "a is a directory, and a config file is expected\n  headway run --resume a goes on with the run"},
		{"run s", "s is a directory, and a config file is expected\n  headway serve FILE --dir . --name s goes on with it"},
		{"serve a", "a is a directory, and a config file is expected"},
		{"run --dir . --name a", "choose another --name, or go on with it by --resume a"},
	} {
		code, _, stderr := headway(t, strings.Fields(c.arguments)...)
		if code != failure.ExitUsage || !strings.Contains(stderr, c.want) {
			t.Errorf("headway %s: exit %d, want %q in\n%s", c.arguments, code, c.want, stderr)
		}
	}
	wantUnchanged(t, ".", before)
}

// A file that is no trace is told from a damaged one, of which a copy may be had.
func TestWhatIsNoTraceIsSaid(t *testing.T) {
	t.Chdir(t.TempDir())
	good := traceText(t, "live")
	folderOf(t, ".", map[string]string{
		filepath.Join("a", trace.FileName): "hello\nworld", filepath.Join("empty", trace.FileName): "",
		filepath.Join("damaged", trace.FileName): strings.Replace(good, "headway", "headwax", 1),
	})
	for _, c := range []struct{ arguments, want string }{
		{"replay a", "this is no Headway trace: its first line is no header\n  name a run's directory, or its trace.ndjson"},
		{"view a", "this is no Headway trace: its first line is no header\n  name a run's directory, or its trace.ndjson"},
		{"diagnose a", "this is no Headway trace: its first line is no header\n  name a run's directory or its trace.ndjson.zst, of this version of headway, or another"},
		{"resimulate a", "this is no Headway trace: its first line is no header\n  name a run's directory or its trace.ndjson"},
		{"replay empty", "the trace is empty, expected a header\n  the run ended before its first step"},
		{"replay damaged", "checksum mismatch: this line, or one before it, was changed, lost or repeated\n  restore the file from a copy"},
		{"status damaged", "no control plane was started there"},
	} {
		if code, _, stderr := headway(t, strings.Fields(c.arguments)...); code == failure.ExitDone || !strings.Contains(stderr, c.want) {
			t.Errorf("headway %s: exit %d, want %q in\n%s", c.arguments, code, c.want, stderr)
		}
	}
}

// The folder of all runs is the one that --dir names, whatever YAML would make of its name.
func TestRunTakesAnyFolder(t *testing.T) {
	for _, dir := range []string{"runs", "2026", "1e3", "true", "~", "null", "a # b", "a: b", "[a]", `a"b\c`, "*a", "a\tb", "Läufe"} {
		cfg, err := config.LoadWith("", (&runCmd{Dir: dir}).overrides()...)
		if err != nil || cfg.Store.Dir != dir {
			t.Errorf("%q: %q, %v", dir, cfg.Store.Dir, err)
		}
	}
}

// Runs that begin within a second have directories of their own.
func TestRunsOfOneSecond(t *testing.T) {
	first := filepath.Join(t.TempDir(), "runs", "reverse-20260101-120000")
	for _, want := range []string{first, first + "-2", first + "-3"} {
		dir, _, err := ownDirectory(first)
		if info, statErr := os.Stat(dir); err != nil || dir != want || statErr != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s, %v, %v: want %s", dir, err, statErr, want)
		}
	}
	folder := filepath.Join(t.TempDir(), "all", "runs")
	unusable := []string{"--set", "environment.task=code", "--set", "sandbox={driver: process}"} // of which nobody has said that it may
	if code, _, stderr := headway(t, append([]string{"run", "--dir", folder}, unusable...)...); code == failure.ExitDone || len(entries(t, filepath.Dir(filepath.Dir(folder)))) > 0 {
		t.Errorf("a run that does not begin leaves something: code %d, %s", code, stderr)
	}
}
