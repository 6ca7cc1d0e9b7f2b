package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headway-rl/headway/loop"
)

// damageDocument is a control plane that has all its parts inside, and takes a snapshot every few steps.
const damageDocument = `
seed: 7
rollout: {concurrency: 24, group_size: 4}
train: {batch: 16}
queue: {policy: drop, factor: 2}
model: {layers: 1, width: 16, heads: 2}
engines: [{kind: embedded, decode_step_s: 0.0005}]
environment: {kind: embedded, task: reverse, service_time: {kind: lognormal, mean_s: 0.002, tailness: 70}}
trainer: {kind: embedded, steps: %d}
store: {snapshot_every: 3, samples_every: 0, trace: %s}
evaluate: {prompts: 20, every: 0}
filter: {zero_advantage: false}
`

// flipNewest changes a bit after the last place that has a text, of the file that was changed last among those of
// the streams whose names begin so. It reports whether there was one.
func flipNewest(t *testing.T, dir, stream, text string) bool {
	t.Helper()
	newest, at, changed := "", int64(0), time.Time{}
	root := filepath.Join(dir, "runs", "r", "state", "nats")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".blk" || !strings.Contains(path, "/"+stream) {
			return nil // the server removes files meanwhile
		}
		info, err := d.Info()
		if err != nil {
			return nil
		}
		data, err := os.ReadFile(path)
		if i := bytes.LastIndex(data, []byte(text)); err == nil && i >= 0 && info.ModTime().After(changed) {
			newest, at, changed = path, int64(i+len(text)), info.ModTime()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if newest == "" {
		return false
	}
	f, err := os.OpenFile(newest, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	one := make([]byte, 1)
	if _, err = f.ReadAt(one, at); err == nil {
		one[0] ^= 1
		_, err = f.WriteAt(one, at)
	}
	if err != nil {
		t.Fatal(err)
	}
	return true
}

// A bit of the newest snapshot changes on the disk, the run takes more of them, and is killed. It goes on from where
// it was, as often as that is done, with a mirror of the log and without.
func TestServeOutlivesDamagedSnapshots(t *testing.T) {
	const steps = 60
	for _, trace := range []string{"none", "full"} {
		t.Run(trace, func(t *testing.T) {
			dir := t.TempDir()
			document := fmt.Sprintf(damageDocument, steps, trace)
			s := startServe(t, dir, document, "--json")
			for version := loop.Version(8); version < 40; {
				s.reaches(version)
				if !flipNewest(t, dir, "headway_r_snapshots", "headway state 2 ") {
					t.Fatal("no snapshot is on the disk")
				}
				version = s.reaches(version + 8).Version
				s.kill()
				s = startServe(t, dir, document, "--json")
				if again := s.reaches(0).Version; again < version {
					t.Fatalf("it went back from version %d to %d:\n%s", version, again, s.text())
				}
				version += 2
			}
			if status := s.final(); status.Version != steps || !status.Ledger.Balanced {
				t.Errorf("it ended at version %d of %d, ledger %+v", status.Version, steps, status.Ledger)
			}
		})
	}
}

// The control plane is killed, and a bit in the middle of its log changes, without a mirror to read it from: the next
// start says what is lost and where, and leaves every version where it is.
func TestServeSaysThatItsLogIsDamaged(t *testing.T) {
	dir := t.TempDir()
	document := fmt.Sprintf(damageDocument, 4000, "none")
	document = strings.Replace(document, "snapshot_every: 3", "snapshot_every: 2000", 1) // none behind the step that is damaged
	s := startServe(t, dir, document)
	s.reaches(20)
	s.kill()
	version := newestVersion(t, filepath.Join(dir, "runs", "r"))
	if !flipNewest(t, dir, "headway_r_log", fmt.Sprintf(`"lease":%d,"v":%d,"crc`, version-1, version-1)) {
		t.Fatalf("train step %d is not in the log on the disk", version-1)
	}
	versions := func() []string {
		names, err := filepath.Glob(filepath.Join(dir, "runs", "r", "weights", "*"))
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	before := versions()
	s = startServe(t, dir, document)
	<-s.ended
	if text := s.text() + s.stdout.String(); !strings.Contains(text, "the event log has lost its end") && !strings.Contains(text, "is missing or damaged: restore") {
		t.Errorf("it says:\n%s", text)
	}
	for _, name := range versions() {
		if strings.Contains(name, "orphan-") {
			t.Errorf("%s was set aside; before there were %v", name, before)
		}
	}
}

// newestVersion is that of a run's directory.
func newestVersion(t *testing.T, run string) (version loop.Version) {
	t.Helper()
	newest, err := filepath.Glob(filepath.Join(run, "weights", "v*"))
	if err != nil || len(newest) == 0 {
		t.Fatalf("no versions: %v", err)
	}
	if _, err := fmt.Sscanf(filepath.Base(newest[len(newest)-1]), "v%d", &version); err != nil {
		t.Fatal(err)
	}
	return version
}

// mirrored says whether the mirror of a run's log has the train step that made a version.
func mirrored(t *testing.T, dir string, version loop.Version) bool {
	t.Helper()
	reader := logOf(t, dir)
	for rec, err := reader.Next(); err == nil; rec, err = reader.Next() {
		if rec.Event != nil && rec.Event.Kind == loop.TrainStepEnded && rec.Event.Version >= version {
			return true
		}
	}
	return false
}

// killedWithItsMirror kills a control plane behind its 20th step, when the mirror of the log has the newest version. It is written
// every 100 ms, so that this takes some tries. It returns the folder and the version.
func killedWithItsMirror(t *testing.T, document string) (dir string, version loop.Version) {
	t.Helper()
	for {
		dir = t.TempDir()
		run := filepath.Join(dir, "runs", "r")
		s := startServe(t, dir, document)
		version = s.reaches(20).Version
		for !mirrored(t, run, version) {
			s.reaches(version)
		}
		s.kill()
		if version = newestVersion(t, run); mirrored(t, run, version) {
			return dir, version
		}
	}
}

// The end of the log is damaged, and the control plane was killed: the next start names what helps, the log is written anew
// from its mirror, and the run goes on to its end as if nothing had been.
func TestRestoreLog(t *testing.T) {
	const steps = 120
	document := fmt.Sprintf(damageDocument, steps, "full")
	document = strings.Replace(document, "snapshot_every: 3", "snapshot_every: 15", 1) // none behind the step that is damaged
	dir, version := killedWithItsMirror(t, document)
	run := filepath.Join(dir, "runs", "r")
	// Not the very last step: what the mirror did not have yet is lost without a sign.
	if !flipNewest(t, dir, "headway_r_log", fmt.Sprintf(`"lease":%d,"v":%d,"crc`, version-1, version-1)) {
		t.Fatalf("train step %d is not in the log on the disk", version-1)
	}
	s := startServe(t, dir, document)
	<-s.ended
	if text := s.text(); !strings.Contains(text, "headway restore-log "+run) {
		t.Fatalf("the start says:\n%s", text)
	}
	var restored restoredLog
	headwayJSON(t, &restored, "restore-log", run)
	if restored.Version < version-1 || restored.LineBefore >= restored.Line {
		t.Errorf("it restored %+v of a run at version %d", restored, version)
	}
	if entries, err := os.ReadDir(restored.Damaged); err != nil || len(entries) == 0 {
		t.Errorf("the damaged log is not in %s: %v", restored.Damaged, err)
	}
	s = startServe(t, dir, document, "--json")
	if again := s.reaches(0).Version; again < version {
		t.Errorf("it went back from version %d to %d:\n%s", version, again, s.text())
	}
	if status := s.final(); status.Version != steps || !status.Ledger.Balanced {
		t.Errorf("it ended at version %d of %d, ledger %+v", status.Version, steps, status.Ledger)
	}
	for _, command := range [][]string{{"replay", run}, {"weights", "verify", "--run", run}} {
		if code, _, stderr := headway(t, command...); code != 0 {
			t.Errorf("%v: exit code %d:\n%s", command, code, stderr)
		}
	}
	if code, _, stderr := headway(t, "restore-log", run); code != 1 || !strings.Contains(stderr, "nothing is to be restored") {
		t.Errorf("a log that is whole: exit code %d, %s", code, stderr)
	}
}
