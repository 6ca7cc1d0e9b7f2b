package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// recordedFile writes recorded sessions, and returns its name as a document has it.
func recordedFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sessions.jsonl")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const (
	timedRollouts = `{"group": 0, "stream": 0, "prompt_len": 1000, "out_lens": [40, 60], "obs_lens": [500], "tool_times": [2]}
{"group": 0, "stream": 1, "prompt_len": 1000, "out_lens": [20, 30], "obs_lens": [100], "tool_times": [4]}
`
	untimedRollouts = `{"group": 0, "stream": 0, "prompt_len": 1000, "out_lens": [40, 60], "obs_lens": [500]}` + "\n"
	oneRequest      = `{"timestamp": 0, "input_length": 1000, "output_length": 50, "hash_ids": [1]}` + "\n"
)

// What closed forms read says what the sessions are in the mean, and a document with it printed is the same document.
func TestSessionsFillTheModel(t *testing.T) {
	path := recordedFile(t, timedRollouts)
	c := mustLoad(t, "modelled: {sessions: '"+path+"'}")
	m := c.Modelled
	if m.PromptTokens != 1000 || m.Tools.Calls != 1 || m.Tools.OutputTokens != 300 || m.Tools.Time.MeanS != 3 || m.Tools.Time.Kind != "lognormal" || m.Length.Kind != "empirical" || m.Length.CapTokens != 0 {
		t.Errorf("modelled %+v", m)
	}
	lengths, err := c.LengthModel()
	if err != nil || lengths.Mean() != 75 || !c.RecordedTimes() {
		t.Errorf("lengths %v, %v; times: %v", lengths, err, c.RecordedTimes())
	}
	outside, err := c.OutsideModel()
	if err != nil || outside.Mean() < 2.9e9 || outside.Mean() > 3.1e9 {
		t.Errorf("outside %v, %v", outside, err)
	}
	if again := mustLoad(t, string(c.YAML())); !again.Equal(c) {
		t.Errorf("printed as\n%s\nand read as\n%s", c.YAML(), again.YAML())
	}
	if c := mustLoad(t, "{}"); c.RecordedTimes() {
		t.Error("a document without sessions has times of them")
	}
}

// Tools' time is the document's where the record has none.
func TestSessionsWithoutTimes(t *testing.T) {
	c := mustLoad(t, "modelled: {sessions: '"+recordedFile(t, untimedRollouts)+"', tools: {time: {mean_s: 9}, concurrency: 3}}")
	if c.RecordedTimes() || c.Modelled.Tools.Time.MeanS != 9 || c.Modelled.Tools.Calls != 1 {
		t.Errorf("modelled %+v", c.Modelled.Tools)
	}
	if c := mustLoad(t, "modelled: {sessions: '"+recordedFile(t, oneRequest)+"'}"); c.Modelled.Tools.Calls != 0 || c.Modelled.PromptTokens != 1000 {
		t.Errorf("modelled %+v", c.Modelled)
	}
}

func TestSessionsRefuse(t *testing.T) {
	timed, untimed, request := recordedFile(t, timedRollouts), recordedFile(t, untimedRollouts), recordedFile(t, oneRequest)
	const again = "says again what modelled.sessions says"
	for _, c := range []struct{ file, rest, key, problem string }{
		{timed, "prompt_tokens: 7", "modelled.prompt_tokens", again},
		{timed, "length: {mean_tokens: 7}", "modelled.length", again},
		{timed, "length: {cap_tokens: 700}", "modelled.length", again},
		{timed, "tools: {calls: 7}", "modelled.tools.calls", again},
		{timed, "tools: {output_tokens: 7}", "modelled.tools.output_tokens", again},
		{timed, "tools: {calls_kind: poisson}", "modelled.tools.calls_kind", again},
		{timed, "tools: {split: random}", "modelled.tools.split", again},
		{timed, "tools: {time: {mean_s: 7}}", "modelled.tools.time", again},
		{untimed, "tools: {calls_max: 7}", "modelled.tools.calls_max", again},
		{request, "tools: {time: {mean_s: 7}}", "modelled.tools", "has no effect without calls"},
		{timed, "prompt_tokens: 1000}\nrollout: {drift: {steps: 9, length_factor: 2}", "rollout.drift.length_factor", "has no effect on recorded sessions"},
		{timed, "prompt_tokens: 1000}\nrollout: {drift: {steps: 9, tool_calls_factor: 2}", "rollout.drift.tool_calls_factor", "has no effect on recorded sessions"},
	} {
		d, err := Parse("d.yaml", []byte("modelled: {sessions: '"+c.file+"', "+c.rest+"}"))
		if err == nil {
			_, err = d.Resolve()
		}
		if err == nil || !strings.Contains(err.Error(), c.key) || !strings.Contains(err.Error(), c.problem) {
			t.Errorf("%s: %v\nwant %s %s", c.rest, err, c.key, c.problem)
		}
	}
}

// A file that is missing or broken is said by those who play it, with the place of the key. Others need it not.
func TestSessionsUnreadable(t *testing.T) {
	for file, want := range map[string]string{
		"none.jsonl":                           `d.yaml:1:22: modelled.sessions: "none.jsonl" cannot be read: no such file`,
		recordedFile(t, untimedRollouts+"{\n"): ":2:1: no JSON object",
	} {
		d, err := Parse("d.yaml", []byte("modelled: {sessions: '"+file+"'}"))
		if err == nil {
			d, err = d.Resolve()
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, ask := range []func() error{func() error { _, err := d.LengthModel(); return err }, func() error { _, err := d.SessionsModel(); return err }} {
			if err := ask(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v\nwant %s", err, want)
			}
		}
	}
}
