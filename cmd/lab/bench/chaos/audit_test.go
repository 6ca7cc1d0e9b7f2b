package chaos

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// story is a run of two groups of two rollouts, both trained, as its files tell it.
var story = map[string][]string{
	"run/trace.ndjson": {
		`{"n":0,"note":"header","data":{"loop":{"GroupSize":2,"BatchGroups":1}}}`,
		`{"n":1,"e":"run-started"}`,
		`{"n":1,"a":"start-rollout","g":1,"attempt":1}`, `{"n":1,"a":"start-rollout","g":1,"s":1,"attempt":1}`,
		`{"n":1,"a":"start-rollout","g":2,"attempt":1}`, `{"n":1,"a":"start-rollout","g":2,"s":1,"attempt":1}`,
		`{"n":2,"e":"rollout-scored","g":1,"attempt":1}`, `{"n":3,"e":"rollout-scored","g":1,"s":1,"attempt":1}`,
		`{"n":3,"a":"group-leased","g":1,"lease":1}`,
		`{"n":4,"e":"rollout-scored","g":2,"attempt":1}`, `{"n":5,"e":"rollout-scored","g":2,"s":1,"attempt":1}`,
		`{"n":6,"e":"train-step-ended","lease":1,"v":1}`, `{"n":6,"a":"group-trained","g":1,"count":2}`,
		`{"n":6,"a":"group-leased","g":2,"lease":2}`,
		`{"n":7,"e":"train-step-ended","lease":2,"v":2}`, `{"n":7,"a":"group-trained","g":2,"count":2}`,
		`{"n":8,"note":"end","data":{"status":{"live_groups":0,"ledger":{"admitted":4,"in_flight":0,"trained":4,"failed":0}}}}`,
	},
	"run/weights/v000000/manifest.json": {`{"version":0,"lease":0}`},
	"run/weights/v000001/manifest.json": {`{"version":1,"lease":1}`},
	"run/weights/v000002/manifest.json": {`{"version":2,"lease":2}`},
	"trainer.jsonl": {
		`{"event":"connected"}`, `{"event":"leased","lease":1,"version":1,"groups":[1]}`, `{"event":"published","lease":1,"version":1,"groups":[1]}`,
		`{"event":"leased","lease":2,"version":2,"groups":[2]}`, `{"event":"published","lease":2,"version":2,"groups":[2]}`,
	},
	"worker.jsonl": {`[1,0,1]`, `[1,1,1]`, `[2,0,1]`, `[2,1,1]`},
}

// An audit that cannot fail proves nothing: every lie about the run is found.
func TestAuditCanFail(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	audit := func(lie func(files map[string][]string)) (string, error) {
		files := map[string][]string{}
		for name, lines := range story {
			files[name] = append([]string(nil), lines...)
		}
		lie(files)
		dir := t.TempDir()
		for name, lines := range files {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		out, err := exec.Command(python, "audit.py", filepath.Join(dir, "run"), filepath.Join(dir, "trainer.jsonl"), filepath.Join(dir, "worker.jsonl")).CombinedOutput()
		return string(out), err
	}
	if out, err := audit(func(map[string][]string) {}); err != nil {
		t.Fatalf("the truth is found unsound: %v\n%s", err, out)
	}
	drop := func(name, has string) func(map[string][]string) {
		return func(files map[string][]string) {
			kept := files[name][:0]
			for _, line := range files[name] {
				if !strings.Contains(line, has) {
					kept = append(kept, line)
				}
			}
			if len(kept) == len(story[name]) {
				t.Fatalf("nothing of %s has %q", name, has)
			}
			files[name] = kept
		}
	}
	repeat := func(name, has string) func(map[string][]string) {
		return func(files map[string][]string) {
			for _, line := range story[name] {
				if strings.Contains(line, has) {
					files[name] = append(files[name], line)
				}
			}
		}
	}
	replace := func(name, old, changed string) func(map[string][]string) {
		return func(files map[string][]string) {
			text := strings.Join(files[name], "\n")
			if !strings.Contains(text, old) {
				t.Fatalf("nothing of %s has %q", name, old)
			}
			files[name] = strings.Split(strings.Replace(text, old, changed, 1), "\n")
		}
	}
	log := "run/trace.ndjson"
	for name, lie := range map[string]func(map[string][]string){
		"a batch committed by two versions":     replace("run/weights/v000002/manifest.json", `"lease":2`, `"lease":1`),
		"a version that is gone":                func(files map[string][]string) { delete(files, "run/weights/v000001/manifest.json") },
		"a train step that is gone":             drop(log, `"train-step-ended","lease":2`),
		"a train step twice":                    repeat(log, `"train-step-ended","lease":2`),
		"a group without an end":                drop(log, `"group-trained","g":2`),
		"a group trained twice":                 repeat(log, `"group-trained","g":2`),
		"a score twice":                         repeat(log, `"rollout-scored","g":1,"attempt"`),
		"an attempt twice":                      repeat(log, `"start-rollout","g":1,"attempt"`),
		"an acknowledged rollout that is gone":  drop(log, `"rollout-scored","g":2,"s":1`),
		"an acknowledged rollout started again": replace(log, `{"n":8`, `{"n":8,"a":"start-rollout","g":2,"s":1,"attempt":2}`+"\n"+`{"n":8`),
		"a ledger that does not add up":         replace(log, `"admitted":4`, `"admitted":5`),
		"a ledger with a batch more":            replace(log, `"admitted":4,"in_flight":0,"trained":4`, `"admitted":6,"in_flight":0,"trained":6`),
		"a log without an end":                  drop(log, `"note":"end"`),
		"a line that is damaged":                replace(log, `{"n":4,`, `{"n":4`),
		"a lease with other groups":             replace("trainer.jsonl", `"leased","lease":2,"version":2,"groups":[2]`, `"leased","lease":2,"version":2,"groups":[1]`),
		"a version acknowledged for another":    replace("trainer.jsonl", `"published","lease":2,"version":2`, `"published","lease":2,"version":1`),
		"a batch published twice":               repeat("trainer.jsonl", `"published","lease":2`),
		"workers that wrote next to nothing":    func(files map[string][]string) { files["worker.jsonl"] = files["worker.jsonl"][:1] },
	} {
		if out, err := audit(lie); err == nil {
			t.Errorf("%s: found sound\n%s", name, out)
		} else if !strings.Contains(out, `"sound": false`) {
			t.Errorf("%s: the audit failed instead of judging: %v\n%s", name, err, out)
		}
	}
}
