package session_test

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/headway-rl/headway/loop/workload/session"
	"github.com/klauspost/compress/zstd"
)

// all reads every session of a text.
func all(t *testing.T, text string) (*session.Record, []session.Session) {
	t.Helper()
	r, err := session.Read(strings.NewReader(text), "trace.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var list []session.Session
	for s, err := range r.Sessions() {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, s)
	}
	return r, list
}

const (
	mooncakeLines = `{"timestamp": 0, "input_length": 1100, "output_length": 52, "hash_ids": [46, 47, 48]}
{"timestamp": 27482, "input_length": 1024, "output_length": 1, "hash_ids": [46, 47]}
`
	rolloutLines = `{"group": 3, "stream": 1, "prompt_len": 7570, "out_lens": [399, 65, 57], "obs_lens": [23, 942, 2126], "tool_times": [0.5, 2, 9]}
{"group": 3, "stream": 0, "prompt_len": 7570, "out_lens": [4], "obs_lens": [], "turns": 1, "reward": 1.0}
`
	playerLines = `{"conv_id": "a", "turns": [{"input_tokens": 10, "output_tokens": 2, "pre_gap_s": 7}, {"input_tokens": 20, "output_tokens": 3, "pre_gap_s": 1.5}]}
{"conv_id": 7, "turns": [{"input_tokens": 1, "output_tokens": 0}]}
`
	claudeLines = `{"id": "s", "models": ["m"], "block_size": 64, "hash_id_scope": "local", "requests": [` +
		`{"t": 0.0, "type": "n", "in": 128, "out": 10, "api_time": 2.0, "ttft": null, "hash_ids": [1, 2]},` +
		`{"type": "subagent", "t": 3.0, "agent_id": "x", "duration_ms": null, "requests": [{"t": 3.5, "type": "s", "in": 64, "out": 0, "api_time": 1, "hash_ids": [3]}, {"t": 4.0, "type": "s", "in": 130, "out": 5, "api_time": 1, "hash_ids": [3, 4, 5]}]},` +
		`{"t": 9.0, "type": "n", "in": 192, "out": 7, "api_time": 1.0, "hash_ids": [1, 2, 6]}]}
{"id": "u", "block_size": 64, "hash_id_scope": "local", "requests": [{"t": 1, "in": 64, "out": 1, "hash_ids": [1]}]}
`
)

func TestFormats(t *testing.T) {
	type sessions = []session.Session
	type calls = []session.Call
	for _, c := range []struct {
		text   string
		format session.Format
		block  int
		want   sessions
	}{
		{mooncakeLines, session.Mooncake, 512, sessions{
			{ID: "0", Calls: calls{{InputTokens: 1100, OutputTokens: 52, Blocks: []uint64{46, 47}}}},
			{ID: "1", StartS: 27.482, Calls: calls{{InputTokens: 1024, OutputTokens: 1, Blocks: []uint64{46, 47}}}}}},
		{rolloutLines, session.Rollouts, 0, sessions{
			{ID: "3/1", Group: 3, Sample: 1, Calls: calls{{InputTokens: 7570, OutputTokens: 399}, {GapS: 0.5, InputTokens: 7992, OutputTokens: 65}, {GapS: 2, InputTokens: 8999, OutputTokens: 57}}},
			{ID: "3/0", Group: 3, Calls: calls{{InputTokens: 7570, OutputTokens: 4}}}}},
		{playerLines, session.Player, 0, sessions{
			{ID: "a", Calls: calls{{InputTokens: 10, OutputTokens: 2}, {GapS: 1.5, InputTokens: 20, OutputTokens: 3}}},
			{ID: "7", Calls: calls{{InputTokens: 1}}}}},
		{claudeLines, session.ClaudeCode, 64, sessions{
			{ID: "s", Calls: calls{{TookS: 2, InputTokens: 128, OutputTokens: 10, Blocks: []uint64{1, 2}}, {GapS: 7, TookS: 1, InputTokens: 192, OutputTokens: 7, Blocks: []uint64{1, 2, 6}}},
				Agents: sessions{{ID: "s/x", StartS: 3.5, Calls: calls{{TookS: 1, InputTokens: 64, Blocks: []uint64{3}}, {TookS: 1, InputTokens: 130, OutputTokens: 5, Blocks: []uint64{3, 4}}}}}},
			// The identifier 1 of another session is another block.
			{ID: "u", StartS: 1, Calls: calls{{InputTokens: 64, OutputTokens: 1, Blocks: []uint64{8}}}}}},
	} {
		r, got := all(t, c.text)
		if r.Format() != c.format || r.BlockTokens() != c.block || r.Grouped() != (c.format == session.Rollouts) {
			t.Errorf("read %s in blocks of %d, want %s in blocks of %d", r.Format(), r.BlockTokens(), c.format, c.block)
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s\n read %+v\n want %+v", c.format, got, c.want)
		}
	}
}

// A global scope keeps identifiers, so that sessions share blocks.
func TestGlobalScope(t *testing.T) {
	_, got := all(t, strings.ReplaceAll(claudeLines, `"local"`, `"global"`))
	if a, b := got[0].Calls[0].Blocks[0], got[1].Calls[0].Blocks[0]; a != b {
		t.Errorf("blocks %d and %d, want one", a, b)
	}
}

func TestCompressed(t *testing.T) {
	dir := t.TempDir()
	var zipped, packed bytes.Buffer
	g := gzip.NewWriter(&zipped)
	g.Write([]byte("\n" + mooncakeLines))
	g.Close()
	z, _ := zstd.NewWriter(&packed)
	z.Write([]byte(strings.TrimSpace(mooncakeLines)))
	z.Close()
	for name, content := range map[string][]byte{"a.gz": zipped.Bytes(), "b.zst": packed.Bytes(), "c": []byte(mooncakeLines)} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := session.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, err := range r.Sessions() {
			if n++; err != nil {
				t.Error(err)
			}
		}
		if err := r.Close(); err != nil || n != 2 {
			t.Errorf("%s: %d sessions, %v; want 2", name, n, err)
		}
		if err := os.WriteFile(path, content[:len(content)-12], 0o600); err != nil {
			t.Fatal(err)
		}
		if err := firstError(path); err == nil {
			t.Errorf("%s: cut off, and read without an error", name)
		}
	}
	if _, err := session.Open(filepath.Join(dir, "none")); err == nil {
		t.Error("a file that is not there was opened")
	}
}

// firstError reads a whole file.
func firstError(path string) error {
	r, err := session.Open(path)
	if err != nil {
		return err
	}
	defer r.Close()
	for _, err := range r.Sessions() {
		if err != nil {
			return err
		}
	}
	return nil
}

// Every wrong line is refused by its place and by what was expected.
func TestWrongLines(t *testing.T) {
	mooncake := func(rest string) string { return mooncakeLines + rest }
	for _, c := range []struct{ text, want string }{
		{"", "trace.jsonl: the file is empty: want a JSON object a line"},
		{"\n \n", "trace.jsonl: the file is empty: want a JSON object a line"},
		{"[1]\n", "trace.jsonl:1:1: a line holds a JSON array: want a JSON object"},
		{"\n{\"a\": 1}\n", "trace.jsonl:2: no known format: want a line with input_length"},
		{"timestamp,input\n", "trace.jsonl:1:2: no JSON object: invalid character"},
		{mooncake("{\"timestamp\": NaN}\n"), "trace.jsonl:3:15: no JSON object: invalid character 'N'"},
		{mooncake(`{"timestamp": 1, "input_len`), "trace.jsonl:3:27: the file ends within this line: it was cut off"},
		{mooncake("{\"timestamp\": 1, \"input_len\n"), "trace.jsonl:3:27: no JSON object: unexpected end"},
		{mooncake(`{"timestamp": 1, "input_length": -5, "output_length": 1, "hash_ids": []}`), "trace.jsonl:3: field input_length is -5: want a whole number of tokens from 1 to 67108864"},
		{mooncake(`{"timestamp": 1, "input_length": 5.5, "output_length": 1, "hash_ids": []}`), "trace.jsonl:3:36: field input_length is number 5.5: want a whole number"},
		{mooncake(`{"timestamp": 1, "input_length": "5", "output_length": 1, "hash_ids": []}`), "trace.jsonl:3:36: field input_length is string: want a whole number"},
		{mooncake(`{"timestamp": 1, "input_length": 99999999999999999999, "output_length": 1}`), "trace.jsonl:3:53: field input_length is number 99999999999999999999: want"},
		{mooncake(`{"timestamp": 1, "input_length": 67108865, "output_length": 1}`), "trace.jsonl:3: field input_length is 67108865: want"},
		{mooncake(`{"timestamp": 1, "input_length": 5, "output_length": -1, "hash_ids": []}`), "trace.jsonl:3: field output_length is -1: want a whole number of tokens from 0"},
		{mooncake(`{"timestamp": 1, "output_length": 1, "hash_ids": []}`), "trace.jsonl:3: field input_length is missing: want"},
		{mooncake(`{"input_length": 1, "output_length": 1, "hash_ids": []}`), "trace.jsonl:3: field timestamp is missing: want a finite time"},
		{mooncake(`{"timestamp": -1, "input_length": 1, "output_length": 1, "hash_ids": []}`), "trace.jsonl:3: field timestamp is -1: want a finite time"},
		{mooncake(`{"timestamp": 1e300, "input_length": 1, "output_length": 1, "hash_ids": []}`), "trace.jsonl:3: field timestamp is 1e+300: want a finite time"},
		{mooncake(`{"timestamp": 1e999, "input_length": 1, "output_length": 1, "hash_ids": []}`), "trace.jsonl:3:19: field timestamp is number 1e999: want a finite time"},
		{mooncake(`{"timestamp": 1, "input_length": 1024, "output_length": 1, "hash_ids": [1]}`), "trace.jsonl:3: field hash_ids is a list of 1: want 2 for 1024 tokens in blocks of 512"},
		{mooncake(`{"timestamp": 1, "input_length": 1025, "output_length": 1, "hash_ids": [1, 2, 3, 4]}`), "trace.jsonl:3: field hash_ids is a list of 4: want 3 for 1025 tokens"},
		{mooncake(`{"timestamp": 1, "input_length": 1, "output_length": 1, "hash_ids": [-1]}`), "trace.jsonl:3: element 0 of a list is -1: want whole numbers"},
		{mooncake(`{"timestamp": 1, "input_length": 1, "output_length": 1, "hash_ids": [1, null]}`), "trace.jsonl:3: element 1 of a list is null"},
		{mooncake(`{"timestamp": 1, "input_length": 1, "output_length": 1, "hash_ids": [1.5]}`), "trace.jsonl:3: element 0 of a list is 1.5"},
		{mooncake(`{"timestamp": 1, "input_length": 1, "output_length": 1, "hash_ids": [18446744073709551616]}`), "trace.jsonl:3: element 0 of a list is 18446744073709551616"},
		{mooncake(`{"timestamp": 1, "input_length": 1, "output_length": 1, "hash_ids": "x"}`), `trace.jsonl:3: hash_ids, out_lens or obs_lens is "x": want a list`},
		{mooncakeLines + rolloutLines, "trace.jsonl:3: field timestamp is missing"},
		{rolloutLines + mooncakeLines, "trace.jsonl:3: field group is missing"},
		{`{"group": 0, "stream": 0, "prompt_len": 1, "out_lens": [], "obs_lens": []}`, "field out_lens is empty: want"},
		{`{"group": 0, "stream": 0, "prompt_len": 1, "out_lens": [1, 0], "obs_lens": [1, 2]}`, "field out_lens[1] is 0: want a whole number of tokens from 1"},
		{`{"group": 0, "stream": 0, "prompt_len": 1, "out_lens": [1, 1, 1], "obs_lens": [1]}`, "field obs_lens is a list of 1: want 3, one after each of 3 turns"},
		{`{"group": 0, "stream": 0, "prompt_len": 1, "out_lens": [67108864], "obs_lens": []}`, "field out_lens is 67108865 tokens with prompt"},
		{`{"group": 0, "stream": 0, "prompt_len": 1, "out_lens": [1, 1], "obs_lens": [1], "tool_times": [-1]}`, "field tool_times[0] is -1: want a finite time"},
		{`{"group": 0, "stream": 0, "prompt_len": 1, "out_lens": [1, 1], "obs_lens": [1], "tool_times": [null]}`, `field tool_times[0] is "": want a finite time`},
		{`{"group": 0, "stream": 0, "prompt_len": 1, "out_lens": [1, 1], "obs_lens": [1], "tool_times": [1, 2, 3]}`, "field tool_times is a list of 3: want at most 2"},
		{`{"group": -1, "stream": 0, "prompt_len": 1, "out_lens": [1], "obs_lens": []}`, "field group is -1: want"},
		{`{"conv_id": "a", "turns": []}`, "field turns is empty"},
		{`{"conv_id": "a", "turns": [{"input_tokens": 5, "output_tokens": 1}, {"input_tokens": 0, "output_tokens": 1}]}`, "field turns[1].input_tokens is 0: want"},
		{`{"conv_id": "a", "turns": [{"input_tokens": 5, "output_tokens": 1, "pre_gap_s": -2}]}`, "field turns[0].pre_gap_s is -2: want"},
		{`{"conv_id": "a", "turns": [{"input_tokens": 5, "output_tokens": 1, "pre_gap_s": "2"}]}`, "field turns.pre_gap_s is string: want a finite time"},
		{`{"requests": []}`, "field block_size is missing"},
		{`{"requests": [], "block_size": 64}`, `field hash_id_scope is "": want "local" or "global"`},
		{`{"requests": [], "block_size": 64, "hash_id_scope": "local"}`, "field requests is empty"},
		{`{"requests": [{"t": 0, "in": 64, "out": 1}, {"t": 0, "in": 64, "out": -1}], "block_size": 64, "hash_id_scope": "local"}`, "field requests[1].out is -1: want"},
		{`{"requests": [{"type": "subagent", "requests": [{"in": 64, "out": 1}]}], "block_size": 64, "hash_id_scope": "local"}`, "field requests[0].requests[0].t is missing"},
		{`{"requests": [{"t": 0, "in": 64, "out": 1, "hash_ids": [1099511627777]}], "block_size": 64, "hash_id_scope": "local"}`, "field requests[0].hash_ids[0] is 1099511627777: want a number of at most 2^40"},
		{`{"requests": [{"t": 0, "in": 128, "out": 1, "hash_ids": [1]}], "block_size": 64, "hash_id_scope": "local"}`, "field requests[0].hash_ids is a list of 1: want 2"},
		{`{"requests": ` + strings.Repeat(`[{"type": "subagent", "requests": `, 18) + "[]" + strings.Repeat("}]", 18) + `, "block_size": 64, "hash_id_scope": "local"}`, "of a sub-agent 17 deep: want at most 16"},
		{claudeLines + strings.Replace(claudeLines, "64", "16", 1), "trace.jsonl:3: field block_size is 16: want 64, as in the file's first session"},
		{"\x1f\x8b\x08\x00\x00", "trace.jsonl: it is compressed by gzip, and broken"},
		{"\x28\xb5\x2f\xfd\x00\x00", "trace.jsonl"},
	} {
		err := readError(c.text)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "trace.jsonl:") {
			t.Errorf("%.120q\n got  %v\n want %s", c.text, err, c.want)
		}
	}
}

// readError reads a whole text.
func readError(text string) error {
	r, err := session.Read(strings.NewReader(text), "trace.jsonl")
	if err != nil {
		return err
	}
	for _, err := range r.Sessions() {
		if err != nil {
			return err
		}
	}
	return nil
}

func FuzzRecord(f *testing.F) {
	for _, seed := range []string{mooncakeLines, rolloutLines, playerLines, claudeLines, mooncakeLines[:100], "{}", "\x1f\x8b", "\x28\xb5\x2f\xfd"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := session.Read(strings.NewReader(text), "f")
		if err != nil {
			return
		}
		sum := session.NewCounter(r)
		var writers []*session.Writer
		out := make([]bytes.Buffer, 3)
		for i, to := range []session.Format{session.Mooncake, session.Rollouts, session.Player} {
			w, err := session.NewWriter(&out[i], to, r.BlockTokens(), r.Grouped())
			if err != nil { // blocks that do not fill those of Mooncake
				return
			}
			writers = append(writers, w)
		}
		for s, err := range r.Sessions() {
			if err != nil {
				if !strings.HasPrefix(err.Error(), "f:") {
					t.Errorf("an error without its place: %v", err)
				}
				return
			}
			check(t, r, s)
			sum.Add(&s)
			for _, w := range writers {
				if err := w.Write(s); err != nil {
					t.Error(err)
				}
			}
		}
		if reused := sum.Summary().Reused; !(reused >= 0 && reused <= 1) {
			t.Errorf("a cache has a share of %g", reused)
		}
		if again, err := session.Read(strings.NewReader(text), "f"); err == nil {
			if _, err := session.NewWorkload(again); err != nil {
				t.Errorf("read, and not played: %v", err)
			}
		}
		for i, w := range writers {
			if err := w.Close(); err != nil {
				t.Error(err)
			}
			if err := readError(out[i].String()); err != nil && !strings.Contains(err.Error(), "is 0: want") && !strings.Contains(err.Error(), "with prompt and observations") {
				t.Errorf("what was written is refused: %v\n%s", err, out[i].String())
			}
		}
	})
}

// check holds what every reader promises of a session.
func check(t *testing.T, r *session.Record, s session.Session) {
	t.Helper()
	if len(s.Calls)+len(s.Agents) == 0 || s.StartS < 0 || !(s.StartS <= session.MaxSeconds) || s.Group < 0 || s.Sample < 0 {
		t.Errorf("session %+v", s)
	}
	for _, c := range s.Calls {
		if c.InputTokens < 0 || c.InputTokens > session.MaxTokens || c.OutputTokens < 0 || c.OutputTokens > session.MaxTokens || !(c.GapS >= 0 && c.GapS <= session.MaxSeconds) {
			t.Errorf("call %+v", c)
		}
		if c.Blocks != nil && len(c.Blocks) != c.InputTokens/r.BlockTokens() {
			t.Errorf("%d blocks of %d tokens for %d", len(c.Blocks), r.BlockTokens(), c.InputTokens)
		}
	}
	for _, a := range s.Agents {
		check(t, r, a)
	}
}
