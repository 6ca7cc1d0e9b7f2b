package session_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"runtime"
	"testing"

	"github.com/headway-rl/headway/loop/workload/session"
)

// endless writes lines until it has written enough.
type endless struct {
	line func(n int, to *bytes.Buffer)
	left int64
	n    int
	have bytes.Buffer
}

func (e *endless) Read(p []byte) (int, error) {
	for e.have.Len() == 0 {
		if e.left <= 0 {
			return 0, io.EOF
		}
		e.line(e.n, &e.have)
		e.left -= int64(e.have.Len())
		e.n++
	}
	return e.have.Read(p)
}

// longSession is a session of 32 calls whose context grows to 2,048 blocks: 200 kB.
func longSession(n int, to *bytes.Buffer) {
	fmt.Fprintf(to, `{"id": "s%d", "block_size": 64, "hash_id_scope": "local", "requests": [`, n)
	for call := 1; call <= 32; call++ {
		fmt.Fprintf(to, `{"t": %d, "in": %d, "out": 5, "api_time": 1, "hash_ids": [1`, call*3, call*64*64)
		for id := 2; id <= call*64; id++ {
			fmt.Fprintf(to, ", %d", id)
		}
		to.WriteString("]}")
		if call < 32 {
			to.WriteString(", ")
		}
	}
	to.WriteString("]}\n")
}

// oneRequest is a request of 24 blocks, two thirds of them its own.
func oneRequest(n int, to *bytes.Buffer) {
	fmt.Fprintf(to, `{"timestamp": %d, "input_length": %d, "output_length": 343, "hash_ids": [0, 1, 2, 3, 4, 5, 6, 7`, n, 24*512)
	for id := range 16 {
		fmt.Fprintf(to, ", %d", 8+n*16+id)
	}
	to.WriteString("]}\n")
}

// streamed is how long the streams of these tests are, in bytes.
func streamed() int64 {
	if os.Getenv("HEADWAY_LONG") != "" {
		return 2 << 30
	}
	return 48 << 20
}

// A record is read in memory that does not grow with it.
func TestMemoryIsBounded(t *testing.T) {
	const limit = 24 << 20
	for name, line := range map[string]func(int, *bytes.Buffer){"mooncake": oneRequest, "claude-code": longSession} {
		read(t, name, line, limit, func(session.Session) {})
	}
}

// read reads a stream and holds it to a limit of memory.
func read(t *testing.T, name string, line func(int, *bytes.Buffer), limit uint64, use func(session.Session)) {
	t.Helper()
	runtime.GC()
	var before, now runtime.MemStats
	runtime.ReadMemStats(&before)
	most, sessions := uint64(0), 0
	r, err := session.Read(&endless{line: line, left: streamed()}, name)
	if err != nil {
		t.Fatal(err)
	}
	for s, err := range r.Sessions() {
		if err != nil {
			t.Fatal(err)
		}
		use(s)
		if sessions++; sessions%64 == 0 {
			runtime.ReadMemStats(&now)
			most = max(most, now.HeapAlloc)
		}
	}
	grown := int64(most) - int64(before.HeapAlloc)
	t.Logf("%s: %d MiB in %d sessions, at most %d kiB of heap", name, streamed()>>20, sessions, grown>>10)
	if grown > int64(limit) || sessions < 100 {
		t.Errorf("%s: %d sessions of %d MiB took %d kiB of heap, want at most %d", name, sessions, streamed()>>20, grown>>10, limit>>10)
	}
}
