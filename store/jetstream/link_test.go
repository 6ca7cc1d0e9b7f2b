package jetstream

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/store/storetest"
)

// errEnough ends a following.
var errEnough = errors.New("enough")

// TestLinkFollows: a link hands over what is appended behind its begin, and where each append ends: one that is cut into
// messages, one of a line that is cut into pieces, and one behind another writer's take-over.
func TestLinkFollows(t *testing.T) {
	o := Options{URL: serverWithRights(t, "followed"), Run: "followed"}
	first := open(t, o)
	enc := begin(t, first)
	must(t, first.Append([][]byte{storetest.Event(enc, 1)}))
	l, err := OpenLink(t.Context(), asCell(t, o, "b"), "b")
	must(t, err)
	defer l.Close()
	h, at, err := l.Begin(t.Context())
	must(t, err)
	want := enc.Position()
	if want.Seq = -1; h.Format != trace.Format || at != want {
		t.Errorf("the log is at %+v, want %+v, in format %d", at, want, h.Format)
	}
	long := func(size int) []byte {
		line, err := enc.AppendNote(nil, "long", strings.Repeat("x", size))
		must(t, err)
		return line
	}
	appends := [][][]byte{
		{storetest.Event(enc, 2)},
		{storetest.Event(enc, 3), long(200 << 10), long(200 << 10), storetest.Event(enc, 4)},
		{storetest.Event(enc, 5), long(3 << 20)},
		{long(3 << 20), storetest.Event(enc, 6)},
	}
	for _, lines := range appends[:3] {
		must(t, first.Append(lines))
	}
	must(t, first.Close())
	second := open(t, o)
	must(t, second.Append(appends[3]))
	n, messages, got := 0, 0, []byte(nil)
	err = l.Follow(t.Context(), func(lines []byte, ends bool) error {
		messages++
		if got = append(got, lines...); !ends {
			return nil
		}
		if want := bytes.Join(appends[n], nil); !bytes.Equal(got, want) {
			t.Errorf("append %d ends with %d bytes, want %d", n, len(got), len(want))
		}
		if n, got = n+1, nil; n == len(appends) {
			return errEnough
		}
		return nil
	})
	if !errors.Is(err, errEnough) || messages < 7 {
		t.Errorf("%v, after %d appends in %d messages", err, n, messages)
	}
}

// TestLinkReplaced: a cell knows that it is the newest of its name once it has followed all that was in the log when it asked.
func TestLinkReplaced(t *testing.T) {
	o := Options{URL: serverWithRights(t, "replaced"), Run: "replaced"}
	s := open(t, o)
	enc := begin(t, s)
	l := openCell(t, o, "b")
	must(t, l.Replaced(t.Context()))
	must(t, s.Append([][]byte{storetest.Event(enc, 1)}))
	if err := l.Replaced(canceled(t)); err == nil {
		t.Error("without an answer it is sure")
	}
	took, goOn := make(chan struct{}), make(chan error)
	followed := make(chan error)
	go func() {
		followed <- l.Follow(t.Context(), func([]byte, bool) error {
			took <- struct{}{}
			return <-goOn
		})
	}()
	<-took
	sure := make(chan error)
	ask := func() { sure <- l.Replaced(t.Context()) }
	go ask()
	select {
	case err := <-sure:
		t.Errorf("before the cell has taken the line: %v", err)
	case goOn <- nil:
		must(t, <-sure)
	}
	must(t, s.Append([][]byte{storetest.Event(enc, 2)}))
	<-took
	go ask()
	goOn <- errEnough
	if err := <-sure; !errors.Is(err, errEnough) {
		t.Errorf("behind the line that ends it: %v", err)
	}
	<-followed
	if err := l.Replaced(t.Context()); !errors.Is(err, errEnough) {
		t.Errorf("then: %v", err)
	}
}

// Calls share a question that has not begun, and none that has.
func TestSharedQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, answer := make(chan int, 9), make(chan error)
		n := 0
		s := &shared{ask: func() error {
			n++
			begun <- n
			return <-answer
		}}
		got := make(chan error, 9)
		ask := func() { got <- s.answer(t.Context()) }
		go ask()
		<-begun
		for range 5 {
			go ask()
		}
		synctest.Wait()
		answer <- errEnough
		if err := <-got; err != errEnough {
			t.Errorf("the first is answered by %v", err)
		}
		<-begun
		synctest.Wait()
		if len(got) > 0 {
			t.Errorf("%d calls that came later are answered by the first question", len(got))
		}
		answer <- nil
		for range 5 {
			if err := <-got; err != nil {
				t.Errorf("a later one is answered by %v", err)
			}
		}
		if s.answer(canceled(t)) == nil {
			t.Error("a call that has left is answered")
		}
		if n := <-begun; n != 3 {
			t.Errorf("%d questions, want 3", n)
		}
		answer <- nil
	})
}

// canceled is a context that has ended.
func canceled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// TestLinkSpeaks: a word reaches the writer with the name of its cell, of this run alone, and its answer comes back.
func TestLinkSpeaks(t *testing.T) {
	url := startServer(t, nil)
	s := open(t, Options{URL: url, Run: "one"})
	heard := make(chan string, 9)
	stop, err := s.HearCells(func(cell string, word []byte) []byte {
		heard <- cell + " says " + string(word)
		if string(word) == "nothing" {
			return nil
		}
		return []byte("no " + string(word))
	})
	must(t, err)
	answers, back := make(chan string, 9), make(chan struct{}, 9)
	for _, run := range []string{"two", "one"} {
		l, err := OpenLink(t.Context(), Options{URL: url, Run: run}, "rack.1-b")
		must(t, err)
		defer l.Close()
		l.Listen(func(answer []byte) { answers <- string(answer) }, func() { back <- struct{}{} })
		must(t, l.Say([]byte("nothing")))
		must(t, l.Say([]byte("word of "+run)))
		must(t, l.store.control.Flush())
		if run == "one" { // what comes while a connection is broken is lost
			if got := <-answers; got != "no word of one" {
				t.Errorf("the answer is %q", got)
			}
		}
		if err := l.Say(bytes.Repeat([]byte("x"), 2<<20)); err == nil {
			t.Error("a word larger than any message is said")
		}
		must(t, l.store.control.ForceReconnect())
		<-back
	}
	for _, want := range []string{"rack.1-b says nothing", "rack.1-b says word of one"} {
		if got := <-heard; got != want {
			t.Errorf("heard %q, want %q", got, want)
		}
	}
	if len(answers) > 0 {
		t.Errorf("there are %d more answers", len(answers))
	}
	stop()
}

// TestLinkIncarnates: each process of a cell is another, in a run whose writer renews its lease beside.
func TestLinkIncarnates(t *testing.T) {
	url := serverWithRights(t, "given")
	o := Options{URL: url, Run: "given", WriterTTL: 30 * time.Millisecond}
	s := open(t, o)
	begin(t, s)
	storetest.Incarnations(t, func(t *testing.T, cell string) func(context.Context) (int64, error) {
		l, err := OpenLink(t.Context(), asCell(t, o, cell), cell)
		must(t, err)
		t.Cleanup(func() { _ = l.Close() })
		return l.Incarnate
	})
	if holder, err := s.lease.Load().adopt(t.Context()); err != nil {
		t.Errorf("the writer's lease has revision %d: %v", holder, err)
	}
	l, err := OpenLink(t.Context(), Options{URL: url, Run: "other"}, "b")
	must(t, err)
	defer l.Close()
	if n, err := l.Incarnate(t.Context()); !errors.Is(err, jetstream.ErrBucketNotFound) || !strings.Contains(err.Error(), "an incarnation of cell b") {
		t.Errorf("in a run that has no writer: %d, %v", n, err)
	}
}

// TestLinkWaitsForARun: a link begins where there is a run, and ends with its context before.
func TestLinkWaitsForARun(t *testing.T) {
	o := Options{URL: serverWithRights(t, "late"), Run: "late"}
	l, err := OpenLink(t.Context(), asCell(t, o, "b"), "b")
	must(t, err)
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := l.Begin(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("without a run: %v", err)
	}
	began := make(chan error, 1)
	go func() {
		_, _, err := l.Begin(t.Context())
		began <- err
	}()
	begin(t, open(t, o))
	must(t, <-began)
	if _, err := OpenLink(t.Context(), Options{Dir: t.TempDir(), Run: "late"}, "b"); err == nil {
		t.Error("a link opens a server of its own")
	}
}

// TestLinkReadAnEndThatIsLost: a server that is killed shows a line that it has not synced, and loses it with its power. A cell that
// has read the line ends where another takes its place, and goes on where none does.
func TestLinkReadAnEndThatIsLost(t *testing.T) {
	port, dir, synced := -1, t.TempDir(), t.TempDir()
	start := func(dir string) *server.Server {
		return runServer(t, func(o *server.Options) { o.Port, o.StoreDir = port, dir })
	}
	stop := func(srv *server.Server) {
		srv.Shutdown()
		srv.WaitForShutdown()
	}
	srv := start(dir)
	port = srv.Addr().(*net.TCPAddr).Port
	o := Options{URL: srv.ClientURL(), Run: "lost", WriterTTL: 100 * time.Millisecond}
	s := open(t, o)
	enc := begin(t, s)
	l := openCell(t, o, "b")
	read, ended := make(chan string, 9), make(chan error, 1)
	go func() {
		ended <- l.Follow(t.Context(), func(lines []byte, _ bool) error { read <- string(lines); return nil })
	}()
	appends := func(n int64) {
		t.Helper()
		line := storetest.Event(enc, n)
		must(t, s.Append([][]byte{line}))
		if got := <-read; got != string(line) {
			t.Errorf("line %d is read as %q", n, got)
		}
	}
	appends(1)
	stop(srv)
	must(t, os.CopyFS(synced, os.DirFS(dir)))
	srv = start(dir)
	before, asked := enc.Position(), atomic.Int32{}
	hears, err := s.control.Subscribe(s.names.cells+".>", func(m *nats.Msg) {
		answer, synced := nats.NewMsg(m.Reply), uint64(0)
		if asked.Add(1) > 2 {
			synced = s.events.synced.Load()
		}
		answer.Header.Set(headerSynced, strconv.FormatUint(synced, 10))
		if len(read) > 0 {
			t.Error("a line is read that may not be synced")
		}
		must(t, m.RespondMsg(answer))
	})
	must(t, err)
	appends(2)
	if must(t, hears.Unsubscribe()); asked.Load() < 3 {
		t.Errorf("the line is read after %d answers, want three: the first two say that it is not synced", asked.Load())
	}
	must(t, s.Close())
	stop(srv)
	start(synced)
	s = open(t, o)
	_, err = s.HearCells(func(string, []byte) []byte { return nil })
	must(t, err)
	if enc = trace.Resume(before); s.events.lines() != before.Line {
		t.Fatalf("the log has %d lines, want %d", s.events.lines(), before.Line)
	}
	must(t, s.Append([][]byte{storetest.Event(enc, 3)}))
	must(t, s.Append([][]byte{storetest.Event(enc, 4)}))
	select {
	case err := <-ended:
		if !errors.Is(err, errOtherEnd) {
			t.Errorf("behind a line that is lost: %v", err)
		}
	case text := <-read:
		t.Fatalf("behind a line that is lost, %q is read", text)
	}
	last, name := s.events.last, "of another writer"
	r := &logReader{store: s, ctx: t.Context()}
	if err := r.standsAt(last, name); !errors.Is(err, errOtherEnd) {
		t.Errorf("behind another message: %v", err)
	}
	if err := r.standsAt(last+1, name); !errors.Is(err, ErrLogDamaged) {
		t.Errorf("behind no message: %v", err)
	}
	must(t, s.log.Purge(t.Context(), jetstream.WithPurgeSequence(last)))
	must(t, r.standsAt(last-1, name)) // which the log has given up
}
