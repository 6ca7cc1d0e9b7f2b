package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headway-rl/headway/cmd/lab/world/plan"
	"github.com/headway-rl/headway/cmd/lab/world/program/programtest"
	"github.com/headway-rl/headway/cmd/lab/world/soak"
)

// A failing plan comes down to two faults, through processes, and the script that is left fails by the same rule.
func TestShrink(t *testing.T) {
	dir := t.TempDir()
	file, out := filepath.Join(dir, "plan.json"), filepath.Join(dir, "small.json")
	if err := (soak.Script{Plan: programtest.Plan(7)}).Write(file); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := typed(t, "shrink", file, "--out", out)
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	contains(t, stdout, "1 plane with its own broker, 1 engine, 1 worker, 0 receivers", "steps     3 of 24", "faults    2 of 6", "BROKEN    shrinks: ", "script    "+out)
	contains(t, stderr, "runs: 3 of 6 faults")
	s, err := soak.ReadScript(out)
	if err != nil || s.Rule != "shrinks" || s.Comment == "" || !programtest.Fails(s.Plan) || len(s.Faults) != 2 || s.Faults[1].Kind != plan.Kill {
		t.Errorf("%+v, %v", s, err)
	}
	if code, _, _ := typed(t, "run", out); code != 1 {
		t.Errorf("exit code %d of the script", code)
	}

	code, stdout, stderr = typed(t, "shrink", fmt.Sprint(programtest.Violated), "--rule", "twice", "--json", "--for", "20s")
	var said struct {
		Script soak.Script
		File   string
		Runs   int
	}
	if err := json.Unmarshal([]byte(stdout), &said); code != 0 || err != nil || said.Runs == 0 || len(said.Script.Faults) != 0 || said.Script.Seed != programtest.Violated {
		t.Errorf("exit code %d, %v: %s%s", code, err, stdout, stderr)
	}
	contains(t, said.File, "once-seed-1001.json")

	for arguments, want := range map[string]string{"7": `"" `, fmt.Sprint(programtest.Violated) + " --rule thrice": `"thrice"`} {
		if code, _, stderr := typed(t, append([]string{"shrink"}, strings.Fields(arguments)...)...); code != 2 {
			t.Errorf("%s: exit code %d: %s, want %s", arguments, code, stderr, want)
		}
	}
}

func TestTwice(t *testing.T) {
	code, stdout, stderr := typed(t, "twice", "--seeds", "1-5,1001-1003")
	if code != 0 {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	contains(t, stdout, "8 seeds ran twice", ": 0 differ, 3 failed in the same way twice")
	dir := t.TempDir()
	for i, text := range []string{"of an earlier run", "of another one"} {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("seed-1003-%s.ndjson", sides[i])), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	code, stdout, stderr = typed(t, "twice", "--seeds", "1,1003,1014-1015", "--failures", dir)
	if code != 1 {
		t.Errorf("exit code %d", code)
	}
	contains(t, stdout, "DIFFERS   seed 1014: mix", "seed-1014-first.txt", "DIFFERS   seed 1015: history, from line 3 on")
	contains(t, stderr, "2 seeds of 4 had another answer when they ran again, the first is 1014: its mix")
	first, err := os.ReadFile(filepath.Join(dir, "seed-1014-first.txt"))
	if err != nil {
		t.Fatal(err)
	}
	second, err := os.ReadFile(filepath.Join(dir, "seed-1014-second.txt"))
	if err != nil || bytes.Equal(first, second) {
		t.Errorf("the answers that are kept are the same, %v", err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*.ndjson"))
	if err != nil || len(left) != 4 {
		t.Errorf("%q, %v: want the histories of two seeds", left, err)
	}
}

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	whole := programtest.Plan(8)
	whole.Faults = whole.Faults[:2]
	if err := (soak.Script{Comment: "a claim that ended too early", Plan: whole}).Write(filepath.Join(dir, "early.json")); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := typed(t, "check", "--seeds", "1-20", "--scripts", dir)
	if code != 0 {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	contains(t, stdout, "20, 18 of them count", "1 kept plan, 0 of them fail")
	if err := (soak.Script{Comment: "a worker that dies twice", Plan: programtest.Plan(9)}).Write(filepath.Join(dir, "dies.json")); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr = typed(t, "check", "--seeds", "1-2", "--scripts", dir)
	if code != 1 {
		t.Errorf("exit code %d", code)
	}
	contains(t, stdout, "dies.json: shrinks: ", "it was kept for this: a worker that dies twice", "2 kept plans, 1 of them fail")
	contains(t, stderr, "a plan that failed once fails again: ")
	if code, _, stderr := typed(t, "check", "--seeds", "1001", "--scripts", t.TempDir()); code != 1 || !strings.Contains(stderr, "1 seed of 1 failed") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

func TestCoverage(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	covered := func(arguments ...string) (int, string, string) {
		var out, diagnostics bytes.Buffer
		code := world.Main(append([]string{"coverage"}, arguments...), strings.NewReader(""), &out, &diagnostics)
		return code, out.String(), diagnostics.String()
	}
	ledger := write("ledger.json", `{"totals": {"pairs": {"claim/kill plane": 3, "publish/cut broker": 0}, "marks": {"takeover": 2}}}`)
	lines := write("lines.json", `{"pairs": {"claim/kill plane": 1}}`+"\n"+`{"pairs": {"publish/kill plane": 1200}}`)
	code, stdout, stderr := covered(ledger, lines)
	if code != 0 {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	contains(t, stdout, "cut broker      –        –", "kill plane      4    1 200", "2 of 4 pairs of a state and a fault are empty", "claim/cut broker: NO REASON", "marks: takeover 2")
	reasons := write("reasons.json", `{"publish/*": "a broker publishes nothing"}`)
	code, stdout, stderr = covered(ledger, lines, "--reasons", reasons)
	if code != 1 {
		t.Errorf("exit code %d", code)
	}
	contains(t, stdout, "publish/cut broker: a broker publishes nothing")
	contains(t, stderr, "1 pair empty without a reason", "claim/cut broker")
	if code, _, stderr := covered(ledger, lines, "--reasons", write("all.json", `{"*/cut *": "nothing is cut"}`)); code != 0 {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	for _, refused := range []string{write("none.json", "{}"), write("bad.json", "["), filepath.Join(dir, "missing.json")} {
		if code, _, stderr := covered(refused); code != 2 {
			t.Errorf("%s: exit code %d: %s", refused, code, stderr)
		}
	}
}

func TestMatches(t *testing.T) {
	for _, test := range []struct {
		pattern, text string
		want          bool
	}{
		{"a/b", "a/b", true}, {"a/b", "a/bc", false}, {"*", "", true}, {"a*", "b", false}, {"a*c", "abc", true}, {"a*c", "ac", true}, {"a*a", "a", false},
		{"*/kill *", "claim/kill plane", true}, {"*/kill *", "claim/cut plane", false}, {"a*b*c", "a1b2c", true}, {"a*b*c", "a1c2b", false},
	} {
		if got := matches(test.pattern, test.text); got != test.want {
			t.Errorf("matches(%q, %q) = %v", test.pattern, test.text, got)
		}
	}
}
