package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// A fakeServer samples tokens that say which weights sampled them, and for which place: token
// version*placesMax + place, where place counts from the first token of the prompt. What a test
// knows of a response it knows from its tokens alone.
const (
	placesMax    = 1000
	fakeVocab    = 1 << 20
	fakePromptOf = 7
)

// fault is what a fakeServer does to one call.
type fault struct {
	status   int           // answers this instead
	retry    string        // with this as Retry-After
	refuse   bool          // closes the connection at once
	after    int           // tokens that come before what follows
	breaks   bool          // the connection breaks
	ends     bool          // the stream ends without its mark
	says     string        // an event
	hangs    bool          // nothing comes any more
	transit  time.Duration // between sampling and sending
	together bool          // everything in one event
	noMark   bool          // the finish comes, the mark does not
	finish   string        // instead of length
}

// fakeServer is a server in memory: its connections are pipes, so that it lives in a bubble.
type fakeServer struct {
	t        testing.TB
	listener *pipeListener
	http     *http.Server
	step     time.Duration // of one token

	mu      sync.Mutex
	caps    Capabilities
	weights loop.Version
	label   string
	paused  bool
	changed chan struct{}
	calls   []fakeCall
	fault   func(call int, q fakeCall) fault
	aborted map[string]bool
	active  map[string]bool
	log     []string
	// What it does to control calls: errors by path, and what is left out.
	failing map[string]int // times that a path fails, below 0 those behind a call that does not
	lazy    bool           // an update changes the label alone
	mute    bool           // says no label
	sham    bool           // says that it pauses, and does not
	unwell  bool
	ponders time.Duration // before it says how it is
	offset  int           // added to spans
	score   float32
	// sender broadcasts to it, and groups are those that it is in.
	sender *fakeSender
	groups map[string]bool
	// side is what the last event of a call says of side channels, nil for nothing.
	side func(c *fakeStream, finish string, e *fakeEvent)
	// stuck is a path that is never answered, asked is closed when it is asked for, begins: its reply begins.
	stuck  string
	asked  chan struct{}
	begins bool
}

type fakeCall struct {
	ID     string  `json:"id"`
	Prompt []int32 `json:"prompt"`
	Max    int     `json:"max"`
	Salt   string  `json:"salt"`
	Known  int     `json:"known"`
	Asked  []string
	index  int
}

func newFakeServer(t testing.TB) *fakeServer {
	f := &fakeServer{
		t: t, listener: newPipeListener(), step: 10 * time.Millisecond, changed: make(chan struct{}), label: "default",
		fault: func(int, fakeCall) fault { return fault{} }, aborted: map[string]bool{}, active: map[string]bool{}, failing: map[string]int{},
		caps: Capabilities{Software: "fake 1", Model: "m", Vocabulary: fakeVocab, Context: placesMax, TokenIDs: true, Logprobs: true, Pause: true, UpdateDisk: true, Salt: true, Template: true},
	}
	f.start()
	return f
}

func (f *fakeServer) start() {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /sample", f.sample)
	for path, do := range map[string]func(*http.Request) string{"/pause": f.pause, "/resume": f.resume, "/update": f.update, "/abort": f.abort, "/version": f.version, "/health": f.health, "/join": f.join, "/part": f.part, "/probe": f.probe, "/score": f.scores} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			if f.fails(path) {
				http.Error(w, "fault", 500)
				return
			}
			if f.hangs(w, path) {
				_, _ = io.Copy(io.Discard, r.Body) // or nobody sees the connection's end
				<-r.Context().Done()
				return
			}
			answer := do(r)
			if code := 0; len(answer) > 4 && answer[0] == '!' {
				_, _ = fmt.Sscanf(answer, "!%d", &code)
				http.Error(w, answer, code)
				return
			}
			_, _ = io.WriteString(w, answer)
		})
	}
	f.http = &http.Server{Handler: mux}
	go func(s *http.Server, l net.Listener) { _ = s.Serve(l) }(f.http, f.listener)
}

// kill ends the server and all its connections; restart starts another one in its place, with
// weights nobody put there.
func (f *fakeServer) kill() { f.listener.refuse(true); _ = f.http.Close() }

func (f *fakeServer) restart(weights loop.Version) {
	f.mu.Lock()
	f.weights, f.label, f.paused, f.groups = weights, "default", false, nil
	f.mu.Unlock()
	f.listener.refuse(false)
	f.start()
}

func (f *fakeServer) note(format string, args ...any) {
	f.log = append(f.log, fmt.Sprintf(format, args...))
}

// hangs reports whether a path is one that is never answered.
func (f *fakeServer) hangs(w http.ResponseWriter, path string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stuck != path {
		return false
	}
	if f.begins {
		_, _ = io.WriteString(w, "{")
		_ = http.NewResponseController(w).Flush()
	}
	select {
	case <-f.asked:
	default:
		close(f.asked)
	}
	return true
}

func (f *fakeServer) fails(path string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.note("%s", strings.TrimPrefix(path, "/"))
	switch n := f.failing[path]; {
	case n > 0:
		f.failing[path]--
		return true
	case n < 0:
		f.failing[path] = -n
	}
	return false
}

func (f *fakeServer) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	close(f.changed)
	f.changed = make(chan struct{})
}

// pace is the time of one token.
func (f *fakeServer) pace() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.step
}

func (f *fakeServer) pause(*http.Request) string {
	f.set(func() { f.paused = !f.sham })
	return "{}"
}

func (f *fakeServer) resume(*http.Request) string {
	f.set(func() { f.paused = false })
	return "{}"
}

func (f *fakeServer) update(r *http.Request) string {
	var u struct {
		Label   string
		Version loop.Version
		Group   Group
	}
	_ = json.NewDecoder(r.Body).Decode(&u)
	if u.Group.Name != "" {
		sent, problem := f.receive(r.Context(), u.Group.Name)
		if problem != "" {
			return "!400 " + problem
		}
		u.Version = sent
	}
	time.Sleep(f.pace() * 20)
	f.set(func() {
		f.label = u.Label
		if !f.lazy {
			f.weights = u.Version
		}
	})
	return "{}"
}

// abort ends what begins with the id, as SGLang does.
func (f *fakeServer) abort(r *http.Request) string {
	id := r.URL.Query().Get("id")
	f.set(func() {
		for other := range f.active {
			if strings.HasPrefix(other, id) {
				f.aborted[other] = true
			}
		}
	})
	return "{}"
}

func (f *fakeServer) version(*http.Request) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mute {
		return `{"label":""}`
	}
	return fmt.Sprintf(`{"label":%q}`, f.label)
}

func (f *fakeServer) health(*http.Request) string {
	time.Sleep(f.ponders)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.unwell {
		return "!503 unwell"
	}
	return "{}"
}

func (f *fakeServer) probe(*http.Request) string { return "{}" }

func (f *fakeServer) scores(*http.Request) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.paused {
		f.t.Error("it is asked for scores while it is paused")
	}
	return fmt.Sprintf("[%g,%g]", -0.1-float32(f.weights), f.score)
}

type fakeEvent struct {
	T []int32
	P []float64
	X string
	F string
	S []Span
	E string
	R string `json:"routed_experts,omitempty"`
	M [][]int32
}

func (f *fakeServer) sample(w http.ResponseWriter, r *http.Request) {
	var q fakeCall
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		f.t.Errorf("a request that is not understood: %v", err)
	}
	f.mu.Lock()
	q.index = len(f.calls)
	f.calls = append(f.calls, q)
	f.active[q.ID] = true
	f.mu.Unlock()
	defer f.set(func() { delete(f.active, q.ID) })
	fault := f.fault(q.index, q)
	switch {
	case fault.status != 0:
		w.Header().Set("Retry-After", fault.retry)
		http.Error(w, "fault", fault.status)
		return
	case fault.refuse:
		panic(http.ErrAbortHandler)
	}
	c := fakeStream{f: f, w: w, r: r, q: q, fault: fault, out: make(chan fakeEvent, placesMax)}
	c.run()
}

// fakeStream samples one response.
type fakeStream struct {
	f     *fakeServer
	w     http.ResponseWriter
	r     *http.Request
	q     fakeCall
	fault fault
	out   chan fakeEvent
	spans []Span
	// tokens are those sampled so far.
	tokens []int32
}

func (c *fakeStream) run() {
	sent := make(chan struct{})
	go func() { defer close(sent); defer c.wake(); c.send() }()
	finish, n := c.fault.finish, 0
	if finish == "" {
		finish = "length"
	}
	var all fakeEvent
	for ; n < c.q.Max; n++ {
		if n == c.fault.after && n > 0 && c.fault.finish != "" {
			break
		}
		if n == c.fault.after && (c.fault.breaks || c.fault.ends || c.fault.says != "" || c.fault.hangs) {
			finish = "fault"
			break
		}
		version, ok := c.step()
		if !ok {
			finish = "abort"
			break
		}
		place := len(c.q.Prompt) + n
		token := int32(int(version)*placesMax + place)
		all.T, all.P, all.X = append(all.T, token), append(all.P, fakeLogprob(token)), all.X+fakeText(token)
		c.span(version, n)
		c.tokens = append(c.tokens, token)
		if !c.fault.together {
			c.out <- all
			all = fakeEvent{}
		}
	}
	if finish != "fault" {
		all.F, all.S = finish, c.spans
		if c.f.side != nil {
			c.f.side(c, finish, &all)
		}
		c.out <- all
	} else {
		c.out <- fakeEvent{E: "fault"}
	}
	close(c.out)
	<-sent
	if c.fault.breaks {
		panic(http.ErrAbortHandler)
	}
}

func (c *fakeStream) wake() { c.f.set(func() {}) }

// span notes which weights sampled the token.
func (c *fakeStream) span(version loop.Version, n int) {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	if !c.f.caps.VersionSpans {
		return
	}
	label, at := c.f.label, n+c.f.offset*len(c.q.Prompt)
	if k := len(c.spans); k > 0 && c.spans[k-1].Label == label {
		c.spans[k-1].End = at + 1
		return
	}
	c.spans = append(c.spans, Span{Label: label, Start: at, End: at + 1})
}

// step waits for the next token and returns the weights that sample it, false when nobody wants it.
func (c *fakeStream) step() (loop.Version, bool) {
	select {
	case <-time.After(c.f.pace()):
	case <-c.r.Context().Done():
		return 0, false
	}
	for {
		c.f.mu.Lock()
		paused, aborted, weights, changed := c.f.paused, c.f.aborted[c.q.ID], c.f.weights, c.f.changed
		c.f.mu.Unlock()
		switch {
		case aborted:
			return 0, false
		case !paused:
			return weights, true
		}
		select {
		case <-changed:
		case <-c.r.Context().Done():
			return 0, false
		}
	}
}

// send writes events as late as the fault says.
func (c *fakeStream) send() {
	flush := http.NewResponseController(c.w)
	_ = flush.Flush()
	for e := range c.out {
		if c.fault.transit > 0 {
			time.Sleep(c.fault.transit)
		}
		if e.E != "" {
			c.sendFault(flush)
			return
		}
		text, _ := json.Marshal(e)
		_, _ = fmt.Fprintf(c.w, "data: %s\n\n", text)
		_ = flush.Flush()
	}
	if !c.fault.noMark {
		_, _ = io.WriteString(c.w, "data: [DONE]\n\n")
	}
	_ = flush.Flush()
}

func (c *fakeStream) sendFault(flush *http.ResponseController) {
	if c.fault.says != "" {
		_, _ = fmt.Fprintf(c.w, "data: %s\n\ndata: [DONE]\n\n", c.fault.says)
		_ = flush.Flush()
	}
	if c.fault.hangs {
		<-c.r.Context().Done()
	}
}

func fakeLogprob(token int32) float64 { return -float64(token%97) / 128 }

func fakeText(token int32) string { return fmt.Sprintf("<%d>", token) }

// fakeDialect speaks with a fakeServer.
type fakeDialect struct{ f *fakeServer }

func (fakeDialect) Kind() string { return "fake" }

func (d fakeDialect) Probe(ctx context.Context, s *Server) (Capabilities, error) {
	if err := s.Call(ctx, http.MethodGet, "/probe", nil, nil); err != nil {
		return Capabilities{}, err
	}
	d.f.mu.Lock()
	defer d.f.mu.Unlock()
	return d.f.caps, nil
}

func (fakeDialect) Generate(r Request, _ *Capabilities) (Call, error) {
	body, err := json.Marshal(fakeCall{ID: r.ID, Prompt: r.Prompt, Max: r.MaxTokens, Salt: r.Salt, Known: r.Known, Asked: r.Channels})
	return Call{Path: "/sample", Body: body}, err
}

func (fakeDialect) Decoder(Request, *Capabilities) Decoder { return fakeDecoder{} }

type fakeDecoder struct{}

func (fakeDecoder) Event(data []byte, d *Delta) error {
	var e fakeEvent
	if err := json.Unmarshal(data, &e); err != nil {
		return fmt.Errorf("%w: %w", err, Excerpt(data))
	}
	if e.E != "" {
		return errors.New(e.E)
	}
	d.Tokens = append(d.Tokens, e.T...)
	for _, p := range e.P {
		d.Logprobs = append(d.Logprobs, float32(p))
	}
	d.Text += e.X
	d.Finish, d.Spans = Finish(e.F), append(d.Spans, e.S...)
	for _, ids := range e.M {
		d.MaskLengths, d.MaskIDs = append(d.MaskLengths, int32(len(ids))), append(d.MaskIDs, ids...)
	}
	return nil
}

func (fakeDialect) Abort(ctx context.Context, s *Server, id string, _ *Capabilities) error {
	return s.Call(ctx, http.MethodPost, "/abort?id="+strings.ReplaceAll(id, "|", "%7C"), nil, nil)
}

func (fakeDialect) Pause(ctx context.Context, s *Server, _ Update, _ *Capabilities) error {
	return s.Call(ctx, http.MethodPost, "/pause", nil, nil)
}

func (fakeDialect) Resume(ctx context.Context, s *Server, _ *Capabilities) error {
	return s.Call(ctx, http.MethodPost, "/resume", nil, nil)
}

func (fakeDialect) Update(ctx context.Context, s *Server, u Update, _ *Capabilities) error {
	return s.Call(ctx, http.MethodPost, "/update", u, nil)
}

func (fakeDialect) Version(ctx context.Context, s *Server, _ *Capabilities) (string, error) {
	var v struct{ Label string }
	err := s.Call(ctx, http.MethodGet, "/version", nil, &v)
	return v.Label, err
}

func (fakeDialect) Score(ctx context.Context, s *Server, _ []int32, _ *Capabilities) ([]float32, error) {
	var scores []float32
	err := s.Call(ctx, http.MethodGet, "/score", nil, &scores)
	return scores, err
}

// newFakeEngine returns an engine over a fake server, which serves version 0.
func newFakeEngine(t testing.TB, f *fakeServer, change func(*Options)) *Engine {
	t.Helper()
	e := newBareEngine(t, f, change)
	serveVersion(t, e, 0)
	return e
}

func newBareEngine(t testing.TB, f *fakeServer, change func(*Options)) *Engine {
	t.Helper()
	s, err := NewServer(ServerOptions{URL: "http://fake", Dial: f.listener.dial})
	if err != nil {
		t.Fatal(err)
	}
	views := t.TempDir()
	o := Options{Name: "e", Slots: 64, Server: s, Dialect: fakeDialect{f}, Delivery: DeliveryDisk, Silent: 10 * time.Second, Logf: t.Logf,
		Views: func(_ context.Context, v loop.Version) (string, error) { return writeView(t, views, v), nil }}
	if change != nil {
		change(&o)
	}
	e, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopFake(t, f, e) })
	return e
}

// stopFake ends engine and server: the bubble's goroutines must all have ended with the test.
func stopFake(t testing.TB, f *fakeServer, e *Engine) {
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	f.kill()
}

func serveVersion(t testing.TB, e *Engine, version loop.Version) {
	t.Helper()
	if err := e.Load(t.Context(), version); err != nil {
		t.Fatal(err)
	}
	if err := e.Switch(t.Context(), version, false); err != nil {
		t.Fatal(err)
	}
}

// request asks for n tokens of a rollout.
func request(sample, n int) port.GenerateRequest {
	return port.GenerateRequest{Rollout: port.RolloutID{Group: 3, Sample: int32(sample), Attempt: 1}, Prompt: make([]int32, fakePromptOf), MaxTokens: n}
}

// checkTokens holds a response against what its own tokens say.
func checkTokens(t testing.TB, g port.Generation, prompt int) {
	t.Helper()
	if len(g.Tokens) != len(g.Logprobs) || len(g.Tokens) != len(g.Versions) {
		t.Fatalf("%d tokens, %d log-probs, %d versions", len(g.Tokens), len(g.Logprobs), len(g.Versions))
	}
	text := ""
	for i, token := range g.Tokens {
		if place := int(token) % placesMax; place != prompt+i {
			t.Fatalf("token %d was sampled for place %d, want %d", i, place, prompt+i)
		}
		if version := loop.Version(token / placesMax); version != g.Versions[i] {
			t.Fatalf("token %d was sampled by version %d and counts as %d", i, version, g.Versions[i])
		}
		if want := float32(fakeLogprob(token)); g.Logprobs[i] != want {
			t.Fatalf("token %d has the log-prob %g, want %g", i, g.Logprobs[i], want)
		}
		text += fakeText(token)
	}
	if g.Text != text {
		t.Fatalf("the text is %q, want %q", g.Text, text)
	}
}
