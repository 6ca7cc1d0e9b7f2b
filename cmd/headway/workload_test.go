package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// sessionsFile writes two rollouts of one prompt.
func sessionsFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rollouts.jsonl")
	const text = `{"group": 0, "stream": 0, "prompt_len": 1000, "out_lens": [40, 60], "obs_lens": [500, 10], "tool_times": [2, 1]}
{"group": 0, "stream": 1, "prompt_len": 1000, "out_lens": [20], "obs_lens": []}
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestWorkloadDescribesAndConverts(t *testing.T) {
	path := sessionsFile(t)
	out := filepath.Join(t.TempDir(), "requests.jsonl")
	code, stdout, stderr := headway(t, "workload", path, "--to", "mooncake", "--out", out, "--json")
	if code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	var told struct {
		Format, Written string
		Sessions, Calls int
		Reused          float64 `json:"reused_share"`
	}
	if err := json.Unmarshal([]byte(stdout), &told); err != nil || told.Sessions != 2 || told.Calls != 3 || told.Format != "rollouts" || told.Written != out {
		t.Errorf("told %+v, %v", told, err)
	}
	if want := float64(1040+1000) / (1000 + 1540 + 1000); told.Reused != want {
		t.Errorf("reused %g, want %g", told.Reused, want)
	}
	written, err := os.ReadFile(out)
	if lines := strings.Count(string(written), "\n"); err != nil || lines != 3 {
		t.Errorf("%d lines, want a line a call: %v", lines, err)
	}
	code, stdout, _ = headway(t, "workload", out)
	if code != 0 || !strings.Contains(stdout, "mooncake") || strings.Contains(stdout, "turns") {
		t.Errorf("exit %d\n%s", code, stdout)
	}
	code, stdout, _ = headway(t, "workload", path, "--to", "player")
	if code != 0 || !strings.HasPrefix(stdout, `{"conv_id":"0/0","turns":[{"input_tokens":1000,"output_tokens":40,"pre_gap_s":0},{"input_tokens":1540,"output_tokens":60,"pre_gap_s":2}]}`) {
		t.Errorf("exit %d\n%s", code, stdout)
	}
}

func TestWorkloadRefuses(t *testing.T) {
	path := sessionsFile(t)
	broken := filepath.Join(t.TempDir(), "broken.jsonl")
	if err := os.WriteFile(broken, []byte(`{"conv_id": "a", "turns": [{"input_tokens": 1, "output_tokens": 2}]}`+"\n{\"conv_id\": 1"), 0o600); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "out.jsonl")
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"none.jsonl"}, 2, "none.jsonl: cannot be read"},
		{[]string{path, "--out", out}, 2, "nothing is written without --to"},
		{[]string{path, "--to", "claude-code"}, 2, "--to"},
		{[]string{path, "--to", "player", "--json"}, 2, "both write to standard output"},
		{[]string{path, "--to", "player", "--out", path}, 2, "the file exists"},
		{[]string{broken, "--to", "player", "--out", out}, 1, "broken.jsonl:2:13: the file ends within this line"},
	} {
		code, _, stderr := headway(t, append([]string{"workload"}, c.args...)...)
		if code != c.code || !strings.Contains(stderr, c.want) {
			t.Errorf("%v: exit %d, want %d\n%s\nwant %s", c.args, code, c.code, stderr, c.want)
		}
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("a half written file is left")
	}
}
