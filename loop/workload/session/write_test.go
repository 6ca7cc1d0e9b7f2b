package session_test

import (
	"bytes"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/loop/workload/session"
)

// written converts a text.
func written(t *testing.T, text string, to session.Format) (string, *session.Writer) {
	t.Helper()
	r, list := all(t, text)
	var out bytes.Buffer
	w, err := session.NewWriter(&out, to, r.BlockTokens(), r.Grouped())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		if err := w.Write(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String(), w
}

// What is written is read again as it was: a format that says all of a record loses nothing of it.
func TestRoundTrips(t *testing.T) {
	for _, c := range []struct {
		text string
		to   session.Format
	}{{mooncakeLines, session.Mooncake}, {rolloutLines, session.Rollouts}, {playerLines, session.Player}} {
		_, want := all(t, c.text)
		again, _ := written(t, c.text, c.to)
		_, got := all(t, again)
		for i := range want { // a request for a server generates at least a token
			for j := range want[i].Calls {
				want[i].Calls[j].OutputTokens = max(want[i].Calls[j].OutputTokens, 1)
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s\n read  %+v\n wrote %+v\n of    %s", c.to, got, want, again)
		}
	}
}

// Rollouts as requests share the whole blocks of their group's prompt, and of their own context, and nothing else.
func TestRolloutsAsRequests(t *testing.T) {
	text := `{"group": 0, "stream": 0, "prompt_len": 1100, "out_lens": [400, 100], "obs_lens": [200]}
{"group": 1, "stream": 0, "prompt_len": 512, "out_lens": [7], "obs_lens": []}
{"group": 0, "stream": 1, "prompt_len": 1100, "out_lens": [900, 1], "obs_lens": [1], "tool_times": [2.5]}
`
	out, _ := written(t, text, session.Mooncake)
	_, got := all(t, out)
	var inputs []int
	var starts []float64
	for _, s := range got {
		inputs = append(inputs, s.Calls[0].InputTokens)
		starts = append(starts, s.StartS)
	}
	if !slices.Equal(inputs, []int{1100, 1700, 512, 1100, 2001}) || !slices.Equal(starts, []float64{0, 0, 0, 0, 2.5}) {
		t.Fatalf("inputs %v at %v", inputs, starts)
	}
	first, second, other, sibling, late := got[0].Calls[0].Blocks, got[1].Calls[0].Blocks, got[2].Calls[0].Blocks, got[3].Calls[0].Blocks, got[4].Calls[0].Blocks
	if len(first) != 2 || !slices.Equal(second[:2], first) || !slices.Equal(sibling, first) || !slices.Equal(late[:2], first) {
		t.Errorf("a group's prompt is not one: %v %v %v %v", first, second, sibling, late)
	}
	if second[2] == late[2] || slices.Contains(first, other[0]) {
		t.Errorf("blocks that differ are one: %v %v %v", second, late, other)
	}
}

// Blocks of 64 tokens become blocks of 512 by the last of eight, and sub-agents requests of their own.
func TestBlocksAreJoined(t *testing.T) {
	out, _ := written(t, `{"id": "s", "block_size": 64, "hash_id_scope": "local", "requests": [`+
		`{"t": 5, "in": 1024, "out": 1, "api_time": 2, "hash_ids": [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]},`+
		`{"type": "subagent", "requests": [{"t": 8, "in": 640, "out": 1, "hash_ids": [1,2,3,4,5,6,7,8,99,100]}]}]}`, session.Mooncake)
	_, got := all(t, out)
	if a, b := got[0].Calls[0].Blocks, got[1].Calls[0].Blocks; len(got) != 2 || !slices.Equal(a, []uint64{8, 16}) || !slices.Equal(b, []uint64{8}) || got[1].StartS != 8 {
		t.Errorf("read %+v", got)
	}
	if _, err := session.NewWriter(nil, session.Mooncake, 48, false); err == nil {
		t.Error("blocks of 48 tokens were joined to 512")
	}
	if _, err := session.NewWriter(nil, session.ClaudeCode, 64, false); err == nil {
		t.Error("a format that is not written was")
	}
}

// A call whose context begins anew cannot be said in a rollout trace, and is counted.
func TestShrunkIsCounted(t *testing.T) {
	_, w := written(t, `{"conv_id": "a", "turns": [{"input_tokens": 100, "output_tokens": 0}, {"input_tokens": 50, "output_tokens": 3}, {"input_tokens": 60, "output_tokens": 3}]}`, session.Rollouts)
	if w.Shrunk != 1 || w.Empty != 1 {
		t.Errorf("%d shrunk and %d empty, want 1 and 1", w.Shrunk, w.Empty)
	}
}

func TestSummary(t *testing.T) {
	summary := func(text string) session.Summary {
		r, err := session.Read(strings.NewReader(text), "t")
		if err != nil {
			t.Fatal(err)
		}
		s, err := session.Summarize(r)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	m := summary(mooncakeLines)
	if m.Sessions != 2 || m.Calls != 2 || m.LastStartS != 27.482 || m.Input.Mean != 1062 || m.Input.Max != 1100 || math.Abs(m.Reused-1024./2124) > 1e-12 {
		t.Errorf("mooncake %+v", m)
	}
	r := summary(rolloutLines) // the second sample's prompt, and the first's context twice
	if r.Groups != 1 || r.Turns.Mean != 2 || r.Turns.Max != 3 || r.Gap.Mean != 1.25 || r.Generated.Max != 521 ||
		math.Abs(r.Reused-float64(7969+8057+7570)/float64(7570+7992+8999+7570)) > 1e-12 {
		t.Errorf("rollouts %+v", r)
	}
	c := summary(claudeLines)
	if c.Sessions != 2 || c.Calls != 5 || c.Agents != 1 || c.AgentCalls != 2 || c.Empty != 1 || c.Turns.Max != 2 || c.Generated.Max != 22 ||
		math.Abs(c.Reused-float64(2*64+64)/float64(128+192+64+130+64)) > 1e-12 || c.Estimated {
		t.Errorf("claude-code %+v", c)
	}
	p := summary(playerLines)
	if p.Input.Median != 10 || p.Input.P90 != 20 || p.Gap.Median != 1.5 || math.Abs(p.Reused-12./31) > 1e-12 {
		t.Errorf("player %+v", p)
	}
}
