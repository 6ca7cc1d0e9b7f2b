package live_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/headway-rl/headway/drive/cell"
	"github.com/headway-rl/headway/drive/cell/link"
	"github.com/headway-rl/headway/drive/live"
	clocks "github.com/headway-rl/headway/internal/presence"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/store/jetstream"
)

// quickEngine answers at once, unless it is held.
type quickEngine struct {
	*fakeEngine
	mu   sync.Mutex
	held chan struct{} // nil while it is not
	// entered has room for one: that a response is held.
	entered chan struct{}
	// let has room for one: that a response was given up while it was held.
	let   chan struct{}
	loads map[loop.Version]int
	plays map[port.RolloutID]int
}

func (e *quickEngine) hold() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.held = make(chan struct{})
}

func (e *quickEngine) release() {
	e.mu.Lock()
	defer e.mu.Unlock()
	close(e.held)
	e.held = nil
}

func (e *quickEngine) Generate(ctx context.Context, req port.GenerateRequest) (port.Generation, error) {
	e.fakeEngine.mu.Lock()
	v := e.served
	e.fakeEngine.mu.Unlock()
	if req.FirstToken != nil {
		req.FirstToken(v)
	}
	e.mu.Lock()
	e.plays[req.Rollout]++
	held := e.held
	e.mu.Unlock()
	g := appendToken(port.Generation{Tokens: req.Prefix.Tokens, Logprobs: req.Prefix.Logprobs, Versions: req.Prefix.Versions}, v)
	if held == nil {
		return g, nil
	}
	select {
	case e.entered <- struct{}{}:
	default:
	}
	select {
	case <-held:
		return g, nil
	case <-req.Interrupt:
		g.Interrupted = true
	case <-ctx.Done():
	}
	select {
	case e.let <- struct{}{}:
	default:
	}
	return g, ctx.Err()
}

func (e *quickEngine) Load(ctx context.Context, v loop.Version) error {
	e.mu.Lock()
	e.loads[v]++
	e.mu.Unlock()
	return e.fakeEngine.Load(ctx, v)
}

// proxy is the network between the cell and the server.
type proxy struct {
	net.Listener
	to    string
	mu    sync.Mutex
	down  bool
	conns []net.Conn
}

func newProxy(t *testing.T, to string) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{Listener: l, to: to}
	t.Cleanup(func() { l.Close(); p.cut(true) })
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", p.to)
			p.mu.Lock()
			if p.down || err != nil {
				from.Close()
			} else {
				p.conns = append(p.conns, from, to)
				go func() { _, _ = io.Copy(from, to); from.Close() }()
				go func() { _, _ = io.Copy(to, from); to.Close() }()
			}
			p.mu.Unlock()
		}
	}()
	return p
}

func (p *proxy) cut(down bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = down
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
}

// roughWire says every third word twice, and every fifth behind the next one.
type roughWire struct {
	*jetstream.Link
	said  int
	late  []byte
	tried chan struct{} // has room for one: that a word was said, or could not be
	inc   *atomic.Int64
}

func (w *roughWire) Incarnate(ctx context.Context) (int64, error) {
	n, err := w.Link.Incarnate(ctx)
	w.inc.Store(n)
	return n, err
}

func (w *roughWire) Say(word []byte) error {
	w.said++
	if w.said%5 == 0 && w.late == nil {
		w.late = word
		return nil
	}
	err := w.Link.Say(word)
	if err == nil && w.said%3 == 0 {
		err = w.Link.Say(word)
	}
	if err == nil && w.late != nil {
		err, w.late = w.Link.Say(w.late), nil
	}
	select {
	case w.tried <- struct{}{}:
	default:
	}
	return err
}

// natsWorld is a run over a real server.
type natsWorld struct {
	*world
	t       *testing.T
	server  *server.Server
	dir     string // the server's
	proxy   *proxy
	engines [3]*quickEngine
	inc     atomic.Int64 // of the cell's newest process
	end     context.CancelFunc
	ended   chan error
	tried   chan struct{}
	header  func() (trace.Header, bool)
	heard   []string // by the ear
	// present is the time in which the writer could hear, which stands at instant now. stalled says why the writer cannot hear.
	present *clocks.Clock
	instant atomic.Int64
	stalled atomic.Pointer[func() error]
}

// pass lets time pass for leases.
func (w *natsWorld) pass(d time.Duration) {
	for ; d > 0; d -= clocks.Every {
		w.present.Tick(w.instant.Add(int64(clocks.Every)), (*w.stalled.Load())() == nil)
	}
}

// startServer starts a server with a port and a directory.
func startServer(t *testing.T, port int, dir string) *server.Server {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: port, NoLog: true, NoSigs: true, JetStream: true, StoreDir: dir,
		JetStreamMaxStore: 1 << 50}) // whatever the disk has: runs reserve their bounds
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the server does not start")
	}
	return s
}

func newNATSWorld(t *testing.T) *natsWorld {
	dir := t.TempDir()
	s := startServer(t, -1, dir)
	cfg := asyncConfig()
	cfg.EngineSlots, cfg.EngineCells, cfg.TrainSteps = []int{2, 2, 2}, []int{0, 1, 1}, 20
	w := &natsWorld{world: newWorld(cfg), t: t, server: s, dir: dir, proxy: newProxy(t, s.Addr().String()), tried: make(chan struct{}, 1), present: clocks.New(0)}
	w.work(work{stepNS: 1})
	for i, e := range w.world.engines {
		w.engines[i] = &quickEngine{fakeEngine: e, entered: make(chan struct{}, 1), let: make(chan struct{}, 1), loads: map[loop.Version]int{}, plays: map[port.RolloutID]int{}}
	}
	return w
}

// startCell starts a process of the cell.
func (w *natsWorld) startCell() {
	ctx, end := context.WithCancel(w.t.Context())
	w.end, w.ended = end, make(chan error, 1)
	began := time.Now()
	clock := func() int64 { return time.Since(began).Nanoseconds() }
	o := cell.Options{Name: "b", Engines: []port.Engine{nil, w.engines[1], w.engines[2]}, Environment: w.env,
		Rules: w.cfg, Clock: clock, Space: &cell.Space{Clock: clock}, Logf: w.t.Logf}
	ended := w.ended
	go func() {
		wire, err := jetstream.OpenLink(ctx, jetstream.Options{URL: "nats://" + w.proxy.Addr().String(), Run: "test", Logf: w.t.Logf}, "b")
		if err == nil {
			o.Payloads = wire
			var l *link.Link
			if l, err = link.New(ctx, &roughWire{Link: wire, tried: w.tried, inc: &w.inc}, o, "test"); err == nil {
				err = l.Run()
			}
			err = errors.Join(err, wire.Close())
		}
		ended <- err
	}()
}

// stopCell ends the cell's process.
func (w *natsWorld) stopCell() {
	w.end()
	if err := <-w.ended; !endedWell(err) {
		w.t.Errorf("the cell ended by %v", err)
	}
}

// lead runs a writer until the run or the context ends. Step is called after every train step.
func (w *natsWorld) lead(ctx context.Context, step func(v loop.Version)) (live.Result, error) {
	s, err := jetstream.Open(w.t.Context(), jetstream.Options{URL: w.server.ClientURL(), Run: "test", Logf: w.t.Logf})
	if err != nil {
		w.t.Fatal(err)
	}
	defer s.Close()
	if _, _, err := s.Acquire(w.t.Context(), "a writer"); err != nil {
		w.t.Fatal(err)
	}
	w.header = s.Header
	stalled := s.Stalled
	w.stalled.Store(&stalled)
	resume := (*live.Resume)(nil)
	if _, there := s.Header(); there {
		if resume, err = live.Recover(s, nil); err != nil {
			w.t.Fatal(err)
		}
		w.offset = resume.Loop.Status().TimeNS
	}
	w.change = func(o *live.Options) {
		o.Store, o.Cells, o.RejoinAfter = s, []string{"b"}, time.Second
		o.Present = func() int64 { return w.present.Now(w.instant.Load()) }
		o.Engines = []port.Engine{w.engines[0], live.Elsewhere("engine-1", 2), live.Elsewhere("engine-2", 2)}
		o.OnStep = func(d live.StepDone) { step(d.Status.Version) }
	}
	r := w.runtime(w.t, resume)
	stop, err := s.HearCells(link.NewEar(r.Receive, func(format string, args ...any) { w.heard = append(w.heard, fmt.Sprintf(format, args...)) }).Take)
	if err != nil {
		w.t.Fatal(err)
	}
	defer stop()
	res, err := r.Run(ctx)
	if err == nil && (res.Reason != loop.ReasonSteps || !res.Status.Ledger.Balanced()) {
		err = fmt.Errorf("ended by %v, ledger %+v", res.Reason, res.Status.Ledger)
	}
	return res, err
}

// calmBut is calm after so many failures, which are whose.
func (w *natsWorld) calmBut(res live.Result, failed int64, whose string) {
	if n := res.Status.Ledger.Failed; n != failed {
		w.t.Errorf("%d attempts failed, want the %d %s", n, failed, whose)
	}
	res.Status.Ledger.Failed = 0
	w.calm(res)
}

// calm reports attempts of the cell that failed or were played twice, and versions that an engine of it loaded twice.
func (w *natsWorld) calm(res live.Result) {
	if n := res.Status.Ledger.Failed; n > 0 {
		w.t.Errorf("%d attempts failed", n)
	}
	for i, e := range w.engines[1:] {
		for v, n := range e.loads {
			if n > 1 {
				w.t.Errorf("engine %d loaded version %d %d times", i+1, v, n)
			}
		}
		for id, n := range e.plays {
			if n > 1 {
				w.t.Errorf("engine %d played %v %d times", i+1, id, n)
			}
		}
	}
}

// TestCellOverNATS: a run trains to its end with two of its engines in a cell that is reached over a server alone, and says
// words twice and late.
func TestCellOverNATS(t *testing.T) {
	w := newNATSWorld(t)
	w.startCell()
	// The engine of the writer's process waits, so that all is played in the cell.
	w.engines[0].hold()
	res, err := w.lead(t.Context(), func(loop.Version) {})
	if err != nil {
		t.Fatalf("%v\n%s", err, w.logged)
	}
	w.stopCell()
	w.calm(res)
}

// holdAt has the cell's engines hold what they play once a version is trained, and does something when one holds.
func (w *natsWorld) holdAt(at loop.Version, then func()) (step func(loop.Version)) {
	return func(v loop.Version) {
		if v != at {
			return
		}
		for _, e := range w.engines[1:] {
			e.hold()
		}
		go func() {
			for _, e := range w.engines[1:] {
				<-e.entered
			}
			then()
		}()
	}
}

func (w *natsWorld) release() {
	for _, e := range w.engines[1:] {
		e.release()
	}
}

// TestCellOverNATSIsCutOff: what ends while the connection is cut is said when it is there again.
func TestCellOverNATSIsCutOff(t *testing.T) {
	w := newNATSWorld(t)
	w.startCell()
	w.engines[0].hold()
	res, err := w.lead(t.Context(), w.holdAt(6, func() {
		w.proxy.cut(true)
		select {
		case <-w.tried: // of before
		default:
		}
		w.release()
		<-w.tried
		w.proxy.cut(false)
	}))
	if err != nil {
		t.Fatalf("%v\n%s", err, w.logged)
	}
	w.stopCell()
	w.calm(res)
}

// TestWriterOverNATSIsRecovered: what a cell plays outlives the writer. No attempt of it fails, none is played twice, and no
// engine of it loads again.
func TestWriterOverNATSIsRecovered(t *testing.T) {
	w := newNATSWorld(t)
	w.startCell()
	w.engines[0].hold()
	ctx, cancel := context.WithCancel(t.Context())
	if res, err := w.lead(ctx, w.holdAt(6, cancel)); !errors.Is(err, context.Canceled) {
		t.Fatalf("%v: %v\n%s", res.Reason, err, w.logged)
	}
	w.release() // to nobody
	res, err := w.lead(t.Context(), func(loop.Version) {})
	if err != nil {
		t.Fatalf("%v\n%s", err, w.logged)
	}
	w.stopCell()
	w.calmBut(res, 2, "of the writer's own engine")
}

// TestCellOverNATSIsKilled: a cell dies with what it plays, and comes back as another process.
func TestCellOverNATSIsKilled(t *testing.T) {
	w := newNATSWorld(t)
	w.startCell()
	w.engines[0].hold()
	res, err := w.lead(t.Context(), w.holdAt(6, func() {
		w.stopCell()
		w.release()
		w.startCell()
	}))
	if err != nil {
		t.Fatalf("%v\n%s", err, w.logged)
	}
	w.stopCell()
	if n := res.Status.Ledger.Failed; n < 2 || n > 4 {
		t.Errorf("%d attempts failed, want those of the cell that was killed", n)
	}
}

// TestBadWordsOverNATS: what cannot be said by the cell is refused, said once in the log, and changes nothing.
func TestBadWordsOverNATS(t *testing.T) {
	w := newNATSWorld(t)
	w.startCell()
	w.engines[0].hold()
	said := func(o trace.Origin, change func(*cell.Event)) []byte {
		ev := cell.Event{Event: loop.Event{Kind: loop.FirstToken, Slot: 2}, Origin: o}
		change(&ev)
		text, err := ev.Word()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	hello := func(change func(*cell.Hello)) func(*cell.Event) {
		return func(ev *cell.Event) {
			h, _ := w.header()
			greeting := cell.NewHello("another", h, h.Loop, []cell.EngineHello{{Engine: 1, Name: "engine-1", Slots: 2}, {Engine: 2, Name: "engine-2", Slots: 2}})
			change(&greeting)
			ev.Event, ev.Hello = loop.Event{Kind: loop.EngineJoined, Engine: 1}, &greeting
		}
	}
	same := func(*cell.Event) {}
	next := trace.Origin{Cell: "b", Incarnation: 1 << 30, Sequence: 1}
	bad := func() []struct {
		word []byte
		want string
	} {
		return []struct {
			word []byte
			want string
		}{
			{[]byte("rubbish"), "no word of a cell"},
			{[]byte(strings.Repeat("x", cell.WordBytesMost+1)), "are allowed"},
			{said(trace.Origin{Cell: "c", Incarnation: 1, Sequence: 1}, same), "by the subject of another"},
			{said(trace.Origin{Cell: "b", Incarnation: 0, Sequence: 1}, same), "is replaced by incarnation"},
			{said(trace.Origin{Cell: "b", Incarnation: w.inc.Load(), Sequence: 1 << 40}, same), "comes without those from"},
			{said(trace.Origin{Cell: "b", Incarnation: 1 << 30, Sequence: 2}, same), "comes without those from 1 on"},
			{said(next, same), "is its hello"},
			{said(next, hello(func(h *cell.Hello) { h.Format++ })), "start both from one release"},
			{said(next, hello(func(h *cell.Hello) { h.Trace++ })), "reads logs of format"},
			{said(next, hello(func(h *cell.Hello) { h.Run = "x" })), "log of another run"},
			{said(next, hello(func(h *cell.Hello) { h.Rules = "x" })), "other rules"},
			{said(next, hello(func(h *cell.Hello) { h.Engines = h.Engines[:1] })), "1 (engine-1, 2 slots), 2 (engine-2, 2 slots)"},
		}
	}
	answers := make(chan string, 1)
	res, err := w.lead(t.Context(), w.holdAt(6, func() {
		defer w.release()
		wire, err := jetstream.OpenLink(t.Context(), jetstream.Options{URL: w.server.ClientURL(), Run: "test"}, "b")
		if err != nil {
			t.Error(err)
			return
		}
		defer wire.Close()
		wire.Listen(func(answer []byte) { answers <- string(answer) }, func() {})
		for range 2 {
			for _, b := range bad() {
				if err := wire.Say(b.word); err != nil {
					t.Error(err)
				}
				if got := <-answers; !strings.Contains(got, b.want) {
					t.Errorf("%.200q is answered by %s, want %q", b.word, got, b.want)
				}
			}
		}
	}))
	if err != nil {
		t.Fatalf("%v\n%s", err, w.logged)
	}
	w.stopCell()
	w.calm(res)
	refused := 0
	for _, line := range w.heard {
		if strings.Contains(line, "refused") {
			refused++
		}
	}
	if refused != 2 {
		t.Errorf("%d lines of refusals, want one for words of no process and one for a newer incarnation: %q", refused, w.heard)
	}
}
