package session_test

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headway-rl/headway/loop/workload"
	"github.com/headway-rl/headway/loop/workload/session"
)

// loadText compiles a text.
func loadText(t *testing.T, text string) *session.Workload {
	t.Helper()
	r, err := session.Read(strings.NewReader(text), "t")
	if err != nil {
		t.Fatal(err)
	}
	w, err := session.NewWorkload(r)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

type turns = []workload.RecordedTurn

func TestTurns(t *testing.T) {
	const s = 1_000_000_000
	for _, c := range []struct {
		name, text string
		want       []turns
	}{
		{"mooncake", mooncakeLines, []turns{{{ContextTokens: 1100, ReadTokens: 1100, Tokens: 52}}, {{ContextTokens: 1024, ReadTokens: 1024, Tokens: 1}}}},
		// One call more of the sub-agent than of the session's own between its two: it shares no block with them.
		{"claude-code", strings.SplitAfter(claudeLines, "\n")[0], []turns{{
			{ContextTokens: 128, ReadTokens: 128, Tokens: 10},
			{GapNS: 1.5 * s, ContextTokens: 64, ReadTokens: 64, Tokens: 1},
			{GapNS: 0, ContextTokens: 130, ReadTokens: 130 - 64, Tokens: 5},
			{GapNS: 3.5 * s, ContextTokens: 192, ReadTokens: 192 - 138, Tokens: 7}}}},
		// The second context is shorter than the first: nothing of it is new. The third goes on.
		{"player", `{"conv_id": "a", "turns": [{"input_tokens": 100, "output_tokens": 9}, {"input_tokens": 50, "output_tokens": 3, "pre_gap_s": 2}, {"input_tokens": 60, "output_tokens": 3}]}`,
			[]turns{{{ContextTokens: 100, ReadTokens: 100, Tokens: 9}, {GapNS: 2 * s, ContextTokens: 50, Tokens: 3}, {ContextTokens: 60, ReadTokens: 7, Tokens: 3}}}},
		// Blocks say that a context begins anew after its first 64 tokens.
		{"restart", `{"id": "s", "block_size": 64, "hash_id_scope": "local", "requests": [{"t": 0, "in": 192, "out": 10, "hash_ids": [1, 2, 3]}, {"t": 9, "in": 256, "out": 1, "hash_ids": [1, 5, 6, 7]}]}`,
			[]turns{{{ContextTokens: 192, ReadTokens: 192, Tokens: 10}, {GapNS: 9 * s, ContextTokens: 256, ReadTokens: 192, Tokens: 1}}}},
	} {
		w := loadText(t, c.text)
		var got []turns
		for i := range w.Rollouts.Rollouts() {
			got = append(got, w.Rollouts.Rollout(i))
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s\n got  %+v\n want %+v", c.name, got, c.want)
		}
	}
}

func TestWorkloadMeans(t *testing.T) {
	w := loadText(t, rolloutLines)
	if w.PromptTokens != 7570 || w.Calls != 1 || w.ReadTokens != (23+942)/2. || !w.Timed || w.GapS != 1.25 || math.Abs(w.GapCV-0.6) > 1e-12 || w.Every != 1 {
		t.Errorf("%+v", w)
	}
	if w := loadText(t, mooncakeLines); w.Timed || w.Calls != 0 || w.PromptTokens != 1062 {
		t.Errorf("%+v", w)
	}
	if got := session.Tailness(math.Sqrt(math.Exp(0.65*0.65) - 1)); math.Abs(got-50) > 1e-9 {
		t.Errorf("the tailness of a lognormal of sigma 0.65 is %g, want 50", got)
	}
}

// A file is read again when it has changed, and only then.
func TestLoadKeeps(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.jsonl")
	write := func(text string, at int64) {
		if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chtimes(path, time.Unix(at, 0), time.Unix(at, 0))); err != nil {
			t.Fatal(err)
		}
	}
	write(rolloutLines, 1)
	first, err := session.Load(path)
	again, err2 := session.Load(path)
	if err != nil || err2 != nil || first != again {
		t.Errorf("%v, %v; read twice: %v", err, err2, first != again)
	}
	write(playerLines, 2)
	if other, err := session.Load(path); err != nil || other == first {
		t.Errorf("a file that changed was not read: %v", err)
	}
	if _, err := session.Load(path + "x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
	write("{", 3)
	if _, err := session.Load(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("%v", err)
	}
}
