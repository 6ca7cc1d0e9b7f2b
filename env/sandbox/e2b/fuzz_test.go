package e2b

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/sandbox/shell"
)

// FuzzStream: what a sandbox says of a command may be anything, since the policy's code runs in it. A stream ends
// with an exit code or an error of a class, and no more of its output is kept than was asked for.
func FuzzStream(f *testing.F) {
	for _, messages := range [][]string{ended(3, "exit status 3", "out", "err"), ended(-1, "signal: killed", "", ""), {`{"error":{"code":"resource_exhausted","message":"m"}}`}} {
		var stream []byte
		for i, text := range messages {
			flags := byte(0)
			if i == len(messages)-1 {
				flags = endOfStream
			}
			stream = append(binary.BigEndian.AppendUint32(append(stream, flags), uint32(len(text))), text...)
		}
		f.Add(stream)
		f.Add(stream[:len(stream)-1])
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		const limit = 64
		over := 0
		e := execution{stdout: shell.Stream{Limit: limit}, stderr: shell.Stream{Limit: limit}, over: func() { over++ }}
		_, _, err := (&box{id: "a-1"}).receive("run", &e, bytes.NewReader(stream))
		if err != nil && sandbox.ClassOf(err) == "" {
			t.Errorf("an error without a class: %v", err)
		}
		if over > 1 {
			t.Errorf("a flood was told of %d times", over)
		}
		for _, s := range []*shell.Stream{&e.stdout, &e.stderr} {
			if kept := s.Text; len(kept) > limit {
				t.Errorf("%d bytes are kept of at most %d", len(kept), limit)
			}
		}
	})
}
