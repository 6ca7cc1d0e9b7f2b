package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/store/lock"
	"github.com/headway-rl/headway/store/weights"
)

// weightsRun makes a run directory with versions 0 to 3 of one tensor, in which version v
// has changed v elements.
func weightsRun(t *testing.T) (run string) {
	t.Helper()
	run = t.TempDir()
	s, err := weights.Open(filepath.Join(run, "weights"), weights.Options{})
	if err != nil {
		t.Fatal(err)
	}
	data := make([]float32, 1000)
	for v := range loop.Version(4) {
		for i := range int(v) {
			data[100*i] = float32(v) / 2
		}
		p := port.Publication{Version: v, Lease: loop.LeaseID(v), Model: []port.Tensor{{Name: "a", Shape: []int{10, 100}, Data: data}}}
		if err := s.Publish(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	return run
}

func TestWeights(t *testing.T) {
	run := weightsRun(t)
	dir := filepath.Join(run, "weights")
	for _, test := range []struct {
		arguments []string
		want      []string
	}{
		{[]string{run}, []string{dir, "version", "F32", "newest", "stored"}},
		{[]string{"list", dir}, []string{"newest"}},
		{[]string{"show", "v3", "--run", run}, []string{"version 3, full, of lease 3", "model.safetensors", "sha256:", "[10 100]"}},
		{[]string{"show", "latest", "--run", run}, []string{"version 3, full"}},
		{[]string{"verify", "--run", run}, []string{"version 0: ", "version 3: ", "verified"}},
		{[]string{"diff", "1", "2", "--run", run}, []string{"0.2 %", "1 of 1 tensors changed", "max |Δ| 1", "overwrite"}},
		{[]string{"diff", "1", "1", "--run", run, "--encoding", "xor"}, []string{"0 of 1 tensors changed"}},
		{[]string{"prune", "--keep", "2", "--run", run}, []string{"would delete 2 versions", "0 to 1", "--yes"}},
		{[]string{"prune", "--keep", "9", "--run", run}, []string{"nothing to delete"}},
	} {
		code, stdout, stderr := headway(t, append([]string{"weights"}, test.arguments...)...)
		if code != failure.ExitDone || stderr != "" {
			t.Errorf("%v: code %d, %s", test.arguments, code, stderr)
		}
		for _, want := range test.want {
			if !strings.Contains(stdout, want) {
				t.Errorf("%v lacks %q:\n%s", test.arguments, want, stdout)
			}
		}
	}
}

func TestWeightsJSON(t *testing.T) {
	run := weightsRun(t)
	parse := func(into any, arguments ...string) {
		t.Helper()
		code, stdout, stderr := headway(t, append(append([]string{"weights"}, arguments...), "--json")...)
		if err := json.Unmarshal([]byte(stdout), into); err != nil || code != failure.ExitDone {
			t.Fatalf("%v: %v, code %d, %s\n%s", arguments, err, code, stderr, stdout)
		}
	}
	var list struct{ Versions []weightsVersion }
	parse(&list, run)
	if n := len(list.Versions); n != 4 || list.Versions[3].State != "newest" || list.Versions[0].Tensors != 1 || list.Versions[0].Bytes == 0 {
		t.Errorf("%+v", list)
	}
	var diff weightsDiff
	parse(&diff, "diff", "0", "3", "--run", run)
	if diff.ElementsChanged != 3 || len(diff.Changed) != 1 || *diff.Changed[0].DeltaMax != 1.5 || diff.DeltaBytes == 0 || diff.DeltaBytes >= diff.Bytes {
		t.Errorf("%+v", diff)
	}
	var shown weights.Manifest
	parse(&shown, "show", "2", "--run", run)
	if shown.Version != 2 || len(shown.Files) != 2 {
		t.Errorf("%+v", shown)
	}
	var pruned struct {
		Deleted  bool
		Versions []loop.Version
		Bytes    int64
	}
	parse(&pruned, "prune", "--keep", "2", "--yes", "--run", run)
	if !pruned.Deleted || len(pruned.Versions) != 2 || pruned.Bytes == 0 {
		t.Errorf("%+v", pruned)
	}
	parse(&list, run)
	if len(list.Versions) != 2 || list.Versions[0].Version != 2 {
		t.Errorf("after prune: %+v", list)
	}
}

// Versions that engines got by a collective are not said to be empty, and those between two syncs are.
func TestWeightsByACollective(t *testing.T) {
	run := weightsRun(t)
	s, err := weights.Open(filepath.Join(run, "weights"), weights.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for v := loop.Version(4); v < 7; v++ {
		draft, err := s.Begin(t.Context(), weights.Description{Version: v, Lease: loop.LeaseID(v), Kind: weights.KindNone})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := draft.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	document := "model: {path: /m}\nengines: [{kind: sglang, url: 'http://a:1', slots: 8, weights: distributed}]\nsync: {every: 2}\nqueue: {policy: bounded, eta: 4}\n"
	if err := os.WriteFile(filepath.Join(run, parts.ConfigFile), []byte(document), 0o644); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := headway(t, "weights", run)
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	if code != failure.ExitDone || len(lines) < 7 {
		t.Fatalf("code %d, %s%s", code, stdout, stderr)
	}
	for i, want := range []string{"newest stored", "by collective, not stored", "empty", "by collective, not stored"} {
		if line := lines[len(lines)-4+i]; !strings.HasSuffix(strings.TrimSpace(line), want) {
			t.Errorf("%q, want %s", line, want)
		}
	}
}

// What the newest version is cannot be said where its manifest is damaged: the error names it.
func TestWeightsLatestDamaged(t *testing.T) {
	run := weightsRun(t)
	path := filepath.Join(run, "weights", "v000003", weights.ManifestName)
	if err := os.WriteFile(path, []byte("garbage"), 0o644); err != nil {
		t.Fatal(err)
	}
	code, _, stderr := headway(t, "weights", "show", "latest", "--run", run)
	if code == failure.ExitDone || !strings.Contains(stderr, path) || !strings.Contains(stderr, "newest version, 3") {
		t.Errorf("code %d, %s, want the damaged file named", code, stderr)
	}
}

func TestWeightsErrors(t *testing.T) {
	run := weightsRun(t)
	path := filepath.Join(run, "weights", "v000001", "model.safetensors")
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	raw[len(raw)-1] ^= 1
	if err := os.WriteFile(path, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(run, "state"), 0o755); err != nil {
		t.Fatal(err)
	}
	held, err := lock.Take(filepath.Join(run, "state", "lock"), run)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Release()
	for _, test := range []struct {
		arguments []string
		code      int
		want      string
	}{
		{[]string{filepath.Join(run, "absent")}, failure.ExitUsage, "name a run directory"},
		{[]string{filepath.Join(run, "state")}, failure.ExitUsage, "neither a directory weights nor versions"},
		{[]string{path}, failure.ExitUsage, "is a file"},
		{[]string{"show", "9", "--run", run}, failure.ExitFailure, "lists the versions"},
		{[]string{"show", "x9", "--run", run}, failure.ExitUsage, `"x9" is no version`},
		{[]string{"diff", "1", "9", "--run", run}, failure.ExitFailure, "no such version"},
		{[]string{"verify", "--run", run}, failure.ExitFailure, "1 of 4 versions"},
		{[]string{"verify", "1", "--run", run}, failure.ExitFailure, "1 of 1 versions"},
		{[]string{"verify", "9", "--run", run}, failure.ExitFailure, "1 of 1 versions"},
		{[]string{"prune", "--keep", "1", "--run", run}, failure.ExitUsage, "--keep 2 is the least"},
		{[]string{"prune", "--keep", "2", "--yes", "--run", run}, failure.ExitFailure, "deletes old versions by itself"},
		{[]string{"prune", "--run", run}, failure.ExitUsage, "--keep"},
	} {
		code, _, stderr := headway(t, append([]string{"weights"}, test.arguments...)...)
		if code != test.code || !strings.Contains(stderr, test.want) {
			t.Errorf("%v: code %d, want %d with %q:\n%s", test.arguments, code, test.code, test.want, stderr)
		}
	}
	// What looks only may look while the run goes on.
	if code, _, stderr := headway(t, "weights", "verify", "2", "--run", run); code != failure.ExitDone {
		t.Errorf("verify of a running run: %s", stderr)
	}
}

// A run that goes on is known by whichever way its versions are named.
func TestWeightsOfARunThatGoesOn(t *testing.T) {
	run := weightsRun(t)
	link := filepath.Join(t.TempDir(), "versions")
	if err := errors.Join(os.Symlink(filepath.Join(run, "weights"), link), os.MkdirAll(filepath.Join(run, "state"), 0o755)); err != nil {
		t.Fatal(err)
	}
	held, err := lock.Take(filepath.Join(run, "state", "lock"), run)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Release()
	for _, path := range []string{run, filepath.Join(run, "weights"), link} {
		if code, stdout, stderr := headway(t, "weights", "prune", "--keep", "2", "--yes", "--run", path); code == failure.ExitDone {
			t.Errorf("%s: %s%s", path, stdout, stderr)
		}
	}
	t.Chdir(filepath.Join(run, "weights"))
	if code, stdout, _ := headway(t, "weights", "prune", "--keep", "2", "--yes", "--run", "."); code == failure.ExitDone {
		t.Errorf("from within: %s", stdout)
	}
}
