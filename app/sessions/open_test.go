package sessions_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/headway-rl/headway/app/sessions"
	"github.com/headway-rl/headway/env/episode"
	"github.com/headway-rl/headway/env/episode/player"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/loop/workload/session"
)

// list opens a path and reads it to its end.
func list(t *testing.T, path string, promptTokens int) (*session.Record, []session.Session) {
	t.Helper()
	r, err := sessions.Open(path, promptTokens)
	if err != nil {
		t.Fatal(err)
	}
	var all []session.Session
	for s, err := range r.Sessions() {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	return r, all
}

// converted writes sessions as another format, and reads that again.
func converted(t *testing.T, r *session.Record, all []session.Session, to session.Format) []session.Session {
	t.Helper()
	var out bytes.Buffer
	w, err := session.NewWriter(&out, to, r.BlockTokens(), r.Grouped())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if err := w.Write(s); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "converted.jsonl")
	if err := errors.Join(w.Close(), os.WriteFile(path, out.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
	_, again := list(t, path, 0)
	return again
}

// writeTrace writes the trace of two rollouts, the second of which fails and is tried again.
func writeTrace(t *testing.T, path string) {
	t.Helper()
	var out bytes.Buffer
	w, err := trace.NewWriter(&out, trace.Header{Format: trace.Format, Source: "live"})
	if err != nil {
		t.Fatal(err)
	}
	start := func(sample, attempt int32) loop.Action {
		return loop.Action{Kind: loop.StartRollout, Group: 5, Sample: sample, Attempt: attempt, Slot: sample}
	}
	event := func(kind loop.EventKind, atS int64, sample, attempt, tokens int32, actions ...loop.Action) {
		w.Event(trace.Event{Event: loop.Event{Kind: kind, Time: atS * 1e9, Group: 5, Sample: sample, Attempt: attempt, Tokens: tokens, Slot: sample, Reason: loop.ReasonTimeout}, GenerateNS: 2e9}, actions)
	}
	event(loop.RunStarted, 0, 0, 0, 0, start(0, 1))
	event(loop.FirstToken, 1, 0, 1, 0, start(1, 1))
	event(loop.RolloutFailed, 2, 1, 1, 7, start(1, 2))
	event(loop.RolloutScored, 3, 0, 1, 40)
	event(loop.RolloutScored, 5, 1, 2, 60)
	if err := errors.Join(w.End(nil), os.WriteFile(path, out.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// A trace has its scored rollouts, each as one call, and others read what is written of it.
func TestTrace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, trace.PlainName)
	writeTrace(t, path)
	if _, err := sessions.Open(path, 0); !errors.Is(err, sessions.ErrNoPrompts) || !strings.Contains(err.Error(), path) {
		t.Errorf("%v, want that prompts are missing", err)
	}
	want := []session.Session{
		{ID: "g5-s0-a1", Group: 4, Calls: []session.Call{{InputTokens: 600, OutputTokens: 40, TookS: 2}}},
		{ID: "g5-s1-a2", Group: 4, Sample: 1, StartS: 2, Calls: []session.Call{{InputTokens: 600, OutputTokens: 60, TookS: 2}}},
	}
	for _, at := range []string{dir, path} {
		r, all := list(t, at, 600)
		if r.Format() != session.Headway || !r.Grouped() || !reflect.DeepEqual(all, want) {
			t.Errorf("%s: %+v\nwant %+v", at, all, want)
		}
	}
	text, err := os.ReadFile(path)
	torn := filepath.Join(t.TempDir(), trace.PlainName) // of a run that goes on
	if err := errors.Join(err, os.WriteFile(torn, text[:bytes.LastIndexByte(text[:len(text)-1], '\n')-9], 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, some := list(t, torn, 600); len(some) == 0 || !reflect.DeepEqual(some, want[:len(some)]) {
		t.Errorf("of a trace whose last line is half written %+v", some)
	}
	r, all := list(t, path, 600)
	again := converted(t, r, all, session.Rollouts)
	for i := range want { // the format has neither starts nor the time of calls
		want[i].ID, want[i].StartS, want[i].Calls[0].TookS = again[i].ID, 0, 0
	}
	if !reflect.DeepEqual(again, want) {
		t.Errorf("as rollouts %+v\nwant %+v", again, want)
	}
	requests := converted(t, r, all, session.Mooncake)
	if len(requests) != 2 || requests[1].StartS != 2 || requests[0].Calls[0].Blocks[0] != requests[1].Calls[0].Blocks[0] || requests[1].Calls[0].OutputTokens != 60 {
		t.Errorf("as requests %+v", requests)
	}
}

// Episodes have every turn, with the tokens that the engine counted and the time in between.
func TestEpisodes(t *testing.T) {
	dir := t.TempDir()
	reward := 1.0
	span := func(kind episode.Kind, turn int, from, to int64) episode.Span {
		return episode.Span{Kind: kind, Turn: turn, StartNS: from * 1e9, EndNS: to * 1e9}
	}
	var log bytes.Buffer
	enc := json.NewEncoder(&log)
	for _, r := range []episode.Record{
		{Rollout: "g3-s1-a1", Turns: 2, Reward: &reward, Tokens: []episode.TurnTokens{{Input: 900, Output: 50}, {Input: 1200, Output: 30}},
			Spans: []episode.Span{span(episode.Tool, 0, 4, 5), span(episode.Model, 0, 5, 8), span(episode.SandboxStart, 0, 8, 9), span(episode.Tool, 0, 9, 12), span(episode.Model, 1, 12, 14), span(episode.Verifier, 1, 14, 20)}},
		{Rollout: "g3-s0-a1", Turns: 1, Failure: "timeout", Tokens: []episode.TurnTokens{{Input: 900, Output: 50}}},
		{Rollout: "evaluation-7", Turns: 1, Reward: &reward, Tokens: []episode.TurnTokens{{Input: 900, Output: 50}}},
	} {
		if err := enc.Encode(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, player.LogName), log.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	r, all := list(t, dir, 0)
	want := []session.Session{{ID: "g3-s1-a1", Group: 2, Sample: 1, StartS: 5, Calls: []session.Call{{TookS: 3, InputTokens: 900, OutputTokens: 50}, {GapS: 4, TookS: 2, InputTokens: 1200, OutputTokens: 30}}}}
	if !reflect.DeepEqual(all, want) {
		t.Fatalf("%+v\nwant %+v", all, want)
	}
	again := converted(t, r, all, session.Rollouts)
	want[0].ID, want[0].StartS, want[0].Calls[0].TookS, want[0].Calls[1].TookS = again[0].ID, 0, 0, 0
	if !reflect.DeepEqual(again, want) {
		t.Errorf("as rollouts %+v\nwant %+v", again, want)
	}
	if requests := converted(t, r, all, session.Mooncake); len(requests) != 2 || requests[1].StartS != 5+3+4 || requests[1].Calls[0].InputTokens != 1200 {
		t.Errorf("as requests %+v", requests)
	}
}

// A run's own files are not taken for another program's, and the reverse.
func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	broken := filepath.Join(dir, trace.PlainName)
	if err := os.WriteFile(broken, []byte("{\"a\": 1}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(dir, "x.jsonl")
	if err := os.WriteFile(other, []byte("{\"a\": 1}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{broken: "no Headway trace", dir: "no Headway trace", other: "no known format", t.TempDir(): "not a run directory", dir + "x": "no such file"} {
		if _, err := sessions.Open(path, 5); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
}
