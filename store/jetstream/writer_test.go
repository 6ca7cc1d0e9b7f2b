package jetstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/store/storetest"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func sampleID(g loop.GroupID) port.RolloutID { return port.RolloutID{Group: g, Attempt: 1} }

// begin appends a header.
func begin(t testing.TB, s *Store) *trace.Encoder {
	t.Helper()
	line, enc := storetest.Header(t)
	must(t, s.Append([][]byte{line}))
	return enc
}

// A standby follows the log and takes over when the writer goes quiet; nothing that the
// deposed writer still does harms the run.
func TestStandbyTakesOver(t *testing.T) {
	url := startServer(t, nil)
	o := Options{URL: url, Run: "handed over", WriterTTL: 300 * time.Millisecond, PayloadBytesMax: 8 << 20}
	first := open(t, o)
	enc := begin(t, first)
	line := storetest.Event(enc, 1)
	must(t, first.Append([][]byte{line}))
	must(t, first.PutSample(storetest.Sample(sampleID(1), 10)))
	must(t, first.PutSample(storetest.Sample(sampleID(2), 10)))
	epoch := first.lease.Load().epoch

	standby, err := Open(t.Context(), o)
	must(t, err)
	defer standby.Close()
	if err := standby.Append([][]byte{line}); !errors.Is(err, ErrNotWriter) {
		t.Errorf("a standby appends: %v", err)
	}
	following, stop := context.WithCancel(t.Context())
	seen, followed := make(chan string, 10), make(chan error, 1)
	go func() {
		followed <- standby.Follow(following, 1, func(from int64, lines []byte) error {
			seen <- fmt.Sprint(from, " ", string(lines))
			return nil
		})
	}()
	if got := <-seen; got != "2 "+string(line) {
		t.Errorf("the standby saw %q", got)
	}
	type result struct {
		epoch uint64
		lost  <-chan struct{}
		err   error
	}
	acquired := make(chan result, 1)
	go func() {
		e, lost, err := standby.Acquire(t.Context(), "standby")
		acquired <- result{e, lost, err}
	}()
	// While the writer renews its lease, lines go on coming through it alone.
	held := storetest.Event(enc, 2)
	must(t, first.Append([][]byte{held}))
	if got := <-seen; got != "3 "+string(held) {
		t.Errorf("the standby saw %q", got)
	}
	select {
	case r := <-acquired:
		t.Fatalf("the standby took over beside a writer that renews its lease: %+v", r)
	default:
	}
	deposed := first.lease.Load()
	deposed.cancel() // it renews no more, and believes that it has the lease
	r := <-acquired
	must(t, r.err)
	if r.epoch <= epoch {
		t.Errorf("epoch %d after %d", r.epoch, epoch)
	}
	// The new writer goes on before the old one has noticed.
	enc2 := *enc
	next := storetest.Event(&enc2, 3)
	must(t, standby.Append([][]byte{next}))
	must(t, standby.PutSample(storetest.Sample(port.RolloutID{Group: 1, Attempt: 2}, 12)))

	must(t, first.PutSample(storetest.Sample(sampleID(1), 10)))
	must(t, first.Forget(2))
	first.payloads.reclaim(t.Context(), true)
	if err := first.Append([][]byte{storetest.Event(enc, 9)}); !errors.Is(err, ErrFenced) {
		t.Errorf("a deposed writer's append: %v", err)
	}
	<-deposed.lost
	if err := first.Snapshot(2, []byte("x")); !errors.Is(err, ErrFenced) {
		t.Errorf("a deposed writer's snapshot: %v", err)
	}
	if err := first.PutSample(storetest.Sample(sampleID(7), 10)); !errors.Is(err, ErrFenced) {
		t.Errorf("a deposed writer's payload: %v", err)
	}
	must(t, first.Close())
	must(t, standby.Close())
	stop()
	<-followed

	last := open(t, o)
	text, err := last.ReadLog(0)
	must(t, err)
	all, err := io.ReadAll(text)
	must(t, err)
	header, _ := storetest.Header(t)
	if want := bytes.Join([][]byte{header, line, held, next}, nil); !bytes.Equal(all, want) {
		t.Errorf("the log is\n%s\nwant\n%s", all, want)
	}
	got, err := last.Samples(1)
	must(t, err)
	if len(got) != 1 || got[0].ID.Attempt != 2 {
		t.Errorf("the deposed writer's payload replaced its successor's: %v", got[0].ID)
	}
}

// A renewal that finds one before it done, whose answer was lost, writes the lease once more: a standby counts from what it sees.
func TestRenewalWithoutAnAnswer(t *testing.T) {
	s := open(t, Options{URL: startServer(t, nil), Run: "answer lost", WriterTTL: time.Hour})
	l := s.lease.Load()
	l.cancel()
	<-l.done // this test renews it
	lost, err := l.bucket.Update(t.Context(), leaseKey, l.value, l.revision)
	must(t, err)
	must(t, l.write(t.Context()))
	entry, err := l.bucket.Get(t.Context(), leaseKey)
	must(t, err)
	if entry.Revision() <= lost || entry.Revision() != l.revision {
		t.Errorf("revision %d is there, %d is known, and that of the lost answer was %d", entry.Revision(), l.revision, lost)
	}
	must(t, l.write(t.Context()))
	taken, err := l.bucket.Put(t.Context(), leaseKey, []byte(`{"nonce":"another's"}`))
	must(t, err)
	if err := l.write(t.Context()); !errors.Is(err, ErrFenced) {
		t.Errorf("another process has the lease, and it is renewed: %v", err)
	}
	if entry, err := l.bucket.Get(t.Context(), leaseKey); err != nil || entry.Revision() != taken {
		t.Errorf("the lease of another process was written over: %v", err)
	}
}

// A message that is found in place of its answer may not be synced: what is appended behind it is answered before anybody
// counts on it. So is a writer's marker, and the last message of an append in several.
func TestAppendWithoutAnAnswer(t *testing.T) {
	s := open(t, Options{URL: startServer(t, func(o *server.Options) { o.MaxPayload = 64 << 10 }), Run: "append without an answer"})
	l, w := &s.events, s.lease.Load()
	enc := begin(t, s)
	note := func(data string) []byte {
		line, err := enc.AppendNote(nil, "note", data)
		must(t, err)
		return line
	}
	short, long := note("of one message"), note(strings.Repeat("of several ", 20_000))
	for _, lines := range [][][]byte{{short}, {long}} {
		last, synced, line, sent := l.last, l.synced.Load(), l.line, l.sent
		must(t, s.Append(lines))
		stored, whole := l.last, l.line
		l.last, l.line, l.sent = last, line, sent // as if nothing had been answered
		l.synced.Store(synced)
		must(t, s.Append(lines))
		m, err := s.leaderGet(t.Context(), s.names.log, stored+1)
		if err != nil || len(m.data) > 0 || l.last != stored+1 || l.line != whole {
			t.Fatalf("behind messages up to %d that were found: %v, %d bytes, the last is %d, and lines are %d of %d", stored, err, len(m.data), l.last, l.line, whole)
		}
	}
	before := l.last
	for range 2 { // the second time it finds the first one
		l.last = before
		must(t, l.publishMarker(t.Context(), s, w, s.logMessage(w.epoch, l.line+1, -1, nil)))
	}
	if l.last != before+2 {
		t.Errorf("after a marker that was found the last message is %d, want %d", l.last, before+2)
	}
	l.last++ // as if the server had lost a message that was found
	lost := s.logMessage(w.epoch, l.line+1, -1, nil)
	if err := l.publish(s, w, lost); !errors.Is(err, errNotSynced) {
		t.Errorf("behind a message that is lost: %v", err)
	}
	if err := l.publishMarker(t.Context(), s, w, lost); !errors.Is(err, errOvertaken) {
		t.Errorf("a marker behind a message that is lost: %v", err)
	}
	l.last--
	must(t, s.Append([][]byte{note("behind")}))
	r, err := s.ReadLog(0)
	must(t, err)
	defer r.Close()
	if text, err := io.ReadAll(r); err != nil || bytes.Count(text, newline) != 4 || !bytes.Contains(text, append(short, long...)) {
		t.Errorf("the log has %d lines (%v), want 4", bytes.Count(text, newline), err)
	}
}

// holdingIs waits until the writer counts on being it, or does not, and returns what it says: on a busy
// machine a lease of a moment is late for a moment, and renewed.
func holdingIs(t *testing.T, s *Store, want bool) error {
	t.Helper()
	for {
		if err := s.Holding(); (err == nil) == want || errors.Is(err, ErrFenced) {
			return err
		}
		runtime.Gosched()
	}
}

// A server that is away is no reason to end a run: nobody took over. Until it answers the
// writer does not count on being it, and closing waits for nobody.
func TestServerIsAway(t *testing.T) {
	port, dir := -1, t.TempDir()
	start := func() *server.Server {
		return runServer(t, func(o *server.Options) { o.Port, o.StoreDir = port, dir })
	}
	srv := start()
	said := make(chan string, 1000) // twice for every time that the lease is late
	s, err := Open(t.Context(), Options{URL: srv.ClientURL(), Run: "alone", WriterTTL: 100 * time.Millisecond,
		Logf: func(format string, args ...any) {
			if text := fmt.Sprintf(format, args...); strings.Contains(text, "lease") {
				said <- text
			}
		}})
	must(t, err)
	defer s.Close()
	_, lost, err := s.Acquire(t.Context(), "a test")
	must(t, err)
	begin(t, s)
	must(t, holdingIs(t, s, true))
	port = srv.Addr().(*net.TCPAddr).Port
	srv.Shutdown()
	srv.WaitForShutdown()
	t.Log(<-said)
	if err := holdingIs(t, s, false); errors.Is(err, ErrFenced) {
		t.Errorf("the lease of a server that is away: %v, want that it may be lost", err)
	}
	start()
	t.Log(<-said)
	must(t, holdingIs(t, s, true))
	must(t, s.PutSample(storetest.Sample(sampleID(1), 10)))
	select {
	case <-lost:
		t.Error("the lease was lost, and nobody took over")
	default:
	}
}

// The mirror is a valid trace of the whole run: after its end was lost, and while the log
// gives up old lines again and again.
func TestMirrorAndRetention(t *testing.T) {
	skipShort(t)
	dir := t.TempDir()
	path := filepath.Join(dir, trace.FileName)
	o := Options{Dir: filepath.Join(dir, "nats"), TracePath: path, LogBytesMax: 1 << 20}
	s := open(t, o)
	enc := begin(t, s)
	for i := range 10_000 { // some 4 MB with what is around them
		must(t, s.Append([][]byte{storetest.Event(enc, int64(i)), storetest.Event(enc, int64(i))}))
		if s.WantsSnapshot() {
			must(t, s.Snapshot(enc.Position().Line, []byte("state")))
		}
		if used, _ := s.Usage(); used > o.LogBytesMax+1<<16 {
			t.Fatalf("the log takes %d bytes of at most %d", used, o.LogBytesMax)
		}
	}
	if _, err := s.readFrom(t.Context(), 0, 0); !errors.Is(err, port.ErrLogTrimmed) {
		t.Errorf("the log still begins with its first line: %v", err)
	}
	read := logText(t, s) // from the mirror, which may be some lines behind, and from the log
	must(t, s.Close())
	whole := mirrorText(t, path)
	if !bytes.Equal(read, whole) {
		t.Errorf("the log is read as %d bytes, want the %d of the mirror", len(read), len(whole))
	}
	if n := int64(bytes.Count(whole, newline)); n != enc.Position().Line {
		t.Fatalf("the mirror has %d lines of %d", n, enc.Position().Line)
	}
	data, err := os.ReadFile(path)
	must(t, err)
	if len(data) > len(whole)/2 {
		t.Errorf("the mirror's %d bytes of text take %d", len(whole), len(data))
	}
	for _, cut := range []int{len(data) - 1, len(data) - 4, len(data) - 1000} {
		must(t, os.WriteFile(path, data[:cut], 0o644))
		s := open(t, o)
		if h, ok := s.Header(); !ok || h.Seed != 7 {
			t.Errorf("the header is %v (%v)", h, ok)
		}
		must(t, s.Close())
		if got := mirrorText(t, path); !bytes.Equal(got, whole) {
			t.Fatalf("the mirror was cut at %d and has %d bytes of %d after it", cut, len(got), len(whole))
		}
	}
}

// A log without snapshots fills up, says so without having appended anything, and goes on
// after one was taken.
func TestFullLogWaitsForASnapshot(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir(), LogBytesMax: 256 << 10})
	enc := begin(t, s)
	refused := 0
	for range 3000 {
		before := *enc
		line := storetest.Event(enc, 1)
		err := s.Append([][]byte{line})
		for tries := 0; errors.Is(err, port.ErrNoSpace) && tries < 3; tries++ {
			refused++
			if !s.WantsSnapshot() {
				t.Fatal("a full log does not want a snapshot")
			}
			must(t, s.Snapshot(before.Position().Line, []byte("state")))
			if tries == 0 && refused == 1 { // there is none before it yet
				must(t, s.Snapshot(before.Position().Line-1, []byte("state")))
			}
			err = s.Append([][]byte{line})
		}
		must(t, err)
	}
	if refused == 0 {
		t.Error("the log was never full")
	}
	if lines := s.events.lines(); lines != enc.Position().Line {
		t.Errorf("%d lines, want %d", lines, enc.Position().Line)
	}
}

// A full disk is an error of its own, and nothing is lost over it.
func TestFullDisk(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	enc := begin(t, s)
	free := int64(0)
	s.disk.free = func(string) (int64, error) { return free, nil }
	s.disk.at = time.Time{}
	line := storetest.Event(enc, 1)
	for name, err := range map[string]error{"append": s.Append([][]byte{line}), "payload": s.PutSample(storetest.Sample(sampleID(1), 10)), "snapshot": s.Snapshot(1, []byte("x"))} {
		if !errors.Is(err, port.ErrNoSpace) {
			t.Errorf("%s on a full disk: %v", name, err)
		}
	}
	free = math.MaxInt64
	must(t, s.Append([][]byte{line}))
	must(t, s.PutSample(storetest.Sample(sampleID(1), 10)))
	must(t, s.Snapshot(1, []byte("x")))
}

// Payloads that stay while others come and go do not keep the others' room.
func TestStragglersKeepTheirOwnRoomAlone(t *testing.T) {
	t.Parallel()
	s := open(t, Options{Dir: t.TempDir(), PayloadBytesMax: 4 << 20, CacheBytes: -1})
	begin(t, s)
	for g := loop.GroupID(1); g <= 300; g++ {
		must(t, s.PutSample(storetest.Sample(sampleID(g), 10_000)))
		if g%50 != 0 {
			must(t, s.Forget(g))
		}
	}
	for g := loop.GroupID(50); g <= 300; g += 50 {
		if got, err := s.Samples(g); err != nil || len(got) != 1 {
			t.Errorf("group %d: %v", g, err)
		}
	}
}

// The heap of store and server together does not grow with the groups that went through.
func TestMemoryIsFlat(t *testing.T) {
	skipShort(t)
	groups := 12_000
	if os.Getenv("HEADWAY_LONG") != "" {
		groups = 100_000
	}
	s := open(t, Options{Dir: t.TempDir()})
	begin(t, s)
	through := func(from, to int) uint64 {
		const ahead = 64
		todo := make(chan loop.GroupID)
		done := make(chan error, ahead)
		for range ahead {
			go func() {
				var err error
				for g := range todo {
					for k := range int32(4) {
						err = errors.Join(err, s.PutSample(storetest.Sample(port.RolloutID{Group: g, Sample: k, Attempt: 1}, 60)))
					}
					_, err2 := s.Samples(g)
					err = errors.Join(err, err2, s.Forget(g))
				}
				done <- err
			}()
		}
		for g := from; g < to; g++ {
			todo <- loop.GroupID(g + 1)
		}
		close(todo)
		for range ahead {
			must(t, <-done)
		}
		s.payloads.reclaim(t.Context(), true)
		runtime.GC()
		runtime.GC() // what pools hold goes with the second
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	early := through(0, groups/4)
	late := through(groups/4, groups)
	_, used := s.Usage()
	t.Logf("%d groups: %.1f MB of heap after a quarter, %.1f MB after all; %d bytes in the stream", groups, float64(early)/1e6, float64(late)/1e6, used)
	// The server's own buffers come and go by some megabytes; payloads alone would be 5 kB a group.
	if late > early+16<<20 {
		t.Errorf("the heap grew from %d to %d bytes over %d groups", early, late, groups)
	}
	if used > 1<<20 {
		t.Errorf("%d bytes of payloads are left of groups that were all forgotten", used)
	}
}

func TestObjects(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	o, err := s.Objects(t.Context())
	must(t, err)
	if names, err := o.List(t.Context(), ""); err != nil || len(names) != 0 {
		t.Errorf("%v (%v) in an empty object store", names, err)
	}
	large := strings.Repeat("weights ", 400_000)
	for _, name := range []string{"v2/model.safetensors", "v1/model.safetensors", "v2/manifest.json"} {
		if n, err := o.Put(t.Context(), name, strings.NewReader(large+name)); err != nil || n != int64(len(large)+len(name)) {
			t.Errorf("%s: %d bytes: %v", name, n, err)
		}
	}
	if names, err := o.List(t.Context(), "v2/"); err != nil || fmt.Sprint(names) != "[v2/manifest.json v2/model.safetensors]" {
		t.Errorf("%v (%v)", names, err)
	}
	r, err := o.Open(t.Context(), "v1/model.safetensors")
	must(t, err)
	if text, err := io.ReadAll(r); err != nil || string(text) != large+"v1/model.safetensors" {
		t.Errorf("%d bytes: %v", len(text), err)
	}
	must(t, r.Close())
	must(t, o.Delete(t.Context(), "v1/model.safetensors"))
	must(t, o.Delete(t.Context(), "v1/model.safetensors"))
	if _, err := o.Open(t.Context(), "v1/model.safetensors"); !errors.Is(err, ErrNoObject) {
		t.Errorf("a deleted file: %v", err)
	}
}

// Follow calls visit with the log's lines after the first line lines, and goes on with new ones until
// the context ends. It gives several whole lines at a time, first the number of their first. It keeps
// a standby's replica warm.
func (s *Store) Follow(ctx context.Context, line int64, visit func(first int64, lines []byte) error) error {
	r, err := s.readFrom(ctx, line, 0)
	if err != nil {
		return err
	}
	defer r.Close()
	for {
		text, err := r.message()
		if err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return err
		}
		if len(text) > 0 {
			first := r.lines.line - int64(bytes.Count(text, newline)) + 1
			if err := visit(first, text); err != nil {
				return err
			}
		}
	}
}

// TestAppendInPart: an append of two messages is refused before the first where there is room for one alone.
func TestAppendInPart(t *testing.T) {
	o := Options{URL: serverWithRights(t, "appendpart"), Run: "appendpart", LogBytesMax: 1 << 20}
	s := open(t, o)
	begin(t, s)
	line := append(bytes.Repeat([]byte("x"), 300), '\n')
	for room := uint64(1 << 20); room > 304<<10; {
		must(t, s.Append([][]byte{line}))
		info, err := s.log.Info(t.Context())
		must(t, err)
		room = 1<<20 - info.State.Bytes
	}
	big := append(bytes.Repeat([]byte("y"), 152<<10), '\n')
	if err := s.Append([][]byte{big, big}); !errors.Is(err, port.ErrNoSpace) {
		t.Errorf("an append without room: %v", err)
	}
	must(t, s.Append([][]byte{line}))
}
