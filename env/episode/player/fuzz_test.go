package player

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/headway-rl/headway/env/episode"
	"github.com/headway-rl/headway/env/sandbox"
)

// FuzzReply: an answer to a chat may be anything; it is a message, or an error of the protocol.
func FuzzReply(f *testing.F) {
	f.Add([]byte(`{"choices":[{"finish_reason":"tool_calls","message":{"role":"assistant","content":null,"tool_calls":[{"id":"c","function":{"name":"f","arguments":"{}"}}]},"headway":{"versions":[{"version":3},{"version":1}]}}],"usage":{"completion_tokens":4}}`))
	f.Add([]byte(`{"choices":[{}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := messageOf(body)
		if err != nil {
			if sandbox.ClassOf(err) != sandbox.Protocol {
				t.Errorf("%v", err)
			}
			return
		}
		if !json.Valid(m.Raw) || m.VersionLow > m.VersionHigh {
			t.Errorf("%+v", m)
		}
		_ = readable([]json.RawMessage{m.Raw})
	})
}

// FuzzLog: the log of rollouts may be anything after a crash. Every record before the fault is read, and appending goes on.
func FuzzLog(f *testing.F) {
	f.Add([]byte(`{"rollout":"g1-s0-a1","reward":1,"messages":[{"role":"user","content":"a"}]}` + "\n" + `{"rollout":"g2`))
	f.Add([]byte("\n{}\nnull\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, LogName), text, 0o600); err != nil {
			t.Fatal(err)
		}
		count := func() (n int, err error) {
			err = ReadLog(dir, func(episode.Record) error { n++; return nil })
			return n, err
		}
		before, err := count()
		l, openErr := OpenLog(dir)
		if openErr != nil {
			t.Fatal(openErr)
		}
		if err := l.Append(episode.Record{}); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if after, afterErr := count(); err == nil && (afterErr != nil || after != before+1) {
			t.Errorf("%d records, then %d: %v", before, after, afterErr)
		}
	})
}
