package session_test

import (
	"bytes"
	"fmt"
	"io"
	"math"
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
	return 32 << 20
}

// A record is read, summed up and converted in memory that does not grow with it. Beyond the blocks that are
// remembered, what a cache would have is estimated, within a point.
func TestConvertingIsBounded(t *testing.T) {
	const limit = 96 << 20
	for name, line := range map[string]func(int, *bytes.Buffer){"mooncake": oneRequest, "claude-code": longSession} {
		var sum *session.Counter
		read(t, name, line, limit, func(r *session.Record) func(session.Session) {
			sum = session.NewCounter(r)
			w, err := session.NewWriter(io.Discard, session.Mooncake, r.BlockTokens(), r.Grouped())
			if err != nil {
				t.Fatal(err)
			}
			return func(s session.Session) {
				sum.Add(&s)
				if err := w.Write(s); err != nil {
					t.Fatal(err)
				}
			}
		})
		const want = 8. / 24 // of each request's blocks, after the first's
		if s := sum.Summary(); name == "mooncake" && (!s.Estimated || math.Abs(s.Reused-want) > 0.005) {
			t.Errorf("%s: reused %.4f (estimated: %v), want about %.4f", name, s.Reused, s.Estimated, want)
		}
	}
}

// read reads a stream and holds it to a limit of memory.
func read(t *testing.T, name string, line func(int, *bytes.Buffer), limit uint64, use func(*session.Record) func(session.Session)) {
	t.Helper()
	runtime.GC()
	var before, now runtime.MemStats
	runtime.ReadMemStats(&before)
	most, sessions := uint64(0), 0
	r, err := session.Read(&endless{line: line, left: streamed()}, name)
	if err != nil {
		t.Fatal(err)
	}
	take := use(r)
	for s, err := range r.Sessions() {
		if err != nil {
			t.Fatal(err)
		}
		take(s)
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
