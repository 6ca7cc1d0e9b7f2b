package enginetest

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"time"
)

// FaultKind is a way in which a server fails.
type FaultKind string

// Ways to fail. Those of a stream let Fault.After events pass before.
const (
	// Pass is no fault.
	Pass FaultKind = "pass"
	// Kill closes the connection, Reset does so with an RST, and Truncate in the middle of an event.
	// Short ends the stream regularly, without a finish and without its end mark.
	Kill     FaultKind = "kill"
	Reset    FaultKind = "reset"
	Truncate FaultKind = "truncate"
	Short    FaultKind = "short"
	// Hang sends nothing more and keeps the connection until the client or the proxy ends it. Mute does so
	// before the first byte. Drip waits Fault.Wait before every further event.
	Hang FaultKind = "hang"
	Mute FaultKind = "mute"
	Drip FaultKind = "drip"
	// Broken answers 500, Busy 503 with Retry-After; the server is not asked.
	Broken FaultKind = "500"
	Busy   FaultKind = "503"
	// Error puts an error's event into the stream under HTTP 200 and ends it.
	Error FaultKind = "error event"
	// Garbage replaces an event by what is no JSON.
	Garbage FaultKind = "garbage"
	// Unmarked leaves out the mark of the stream's end, Unfinished every reason for a finish, and
	// Refinished sends the event with the finish twice.
	Unmarked   FaultKind = "no end mark"
	Unfinished FaultKind = "no finish"
	Refinished FaultKind = "two finishes"
	// WrongIDs puts tokens into events that no vocabulary has, FewIDs one token fewer than there are
	// log-probs. NoLogprobs leaves those out, Missing puts -9999 in their place, Positive 0.5.
	WrongIDs   FaultKind = "wrong ids"
	FewIDs     FaultKind = "few ids"
	NoLogprobs FaultKind = "no log-probs"
	Missing    FaultKind = "-9999"
	Positive   FaultKind = "positive log-prob"
)

// FaultKinds are all ways to fail.
var FaultKinds = []FaultKind{Kill, Reset, Truncate, Short, Hang, Mute, Drip, Broken, Busy, Error, Garbage, Unmarked, Unfinished, Refinished,
	WrongIDs, FewIDs, NoLogprobs, Missing, Positive}

// Fault is one failure.
type Fault struct {
	Kind FaultKind
	// After is the number of events of the stream that pass before.
	After int
	// Wait between two events of a Drip; Busy says it as Retry-After, in whole seconds.
	Wait time.Duration
}

func (f Fault) String() string { return fmt.Sprintf("%s after %d events", f.Kind, f.After) }

// generatePaths are those under which the known servers sample.
var generatePaths = []string{"/v1/completions", "/v1/chat/completions", "/inference/v1/generate", "/generate", "/completion", "/completions"}

// Samples reports whether a request asks a server of a known kind for tokens.
func Samples(r *http.Request) bool {
	for _, path := range generatePaths {
		if r.Method == http.MethodPost && r.URL.Path == path {
			return true
		}
	}
	return false
}

// Plan says how each request to a proxy fails. It is asked by one goroutine at a time; the zero
// Fault is none.
type Plan func(r *http.Request) Fault

// Script is the plan by which requests that sample fail one after the other as listed, and none after that.
func Script(faults ...Fault) Plan {
	return func(r *http.Request) Fault {
		if len(faults) == 0 || !Samples(r) {
			return Fault{}
		}
		f := faults[0]
		faults = faults[1:]
		return f
	}
}

// Seeded is the plan by which a share of the requests that sample fail. Each fails by one of the
// kinds and after fewer than events events, until most have failed. It is a function of the seed and
// of the order in which requests come.
func Seeded(seed uint64, share float64, most, events int, kinds ...FaultKind) Plan {
	draw := rand.New(rand.NewPCG(seed, 0x6661756c74))
	return func(r *http.Request) Fault {
		if most == 0 || !Samples(r) || draw.Float64() >= share {
			return Fault{}
		}
		most--
		return Fault{Kind: kinds[draw.IntN(len(kinds))], After: draw.IntN(events), Wait: 20 * time.Millisecond}
	}
}

// FaultProxy is a server in front of another that fails as its plan says.
type FaultProxy struct {
	front *httptest.Server
	http  *http.Client
	wait  func(time.Duration) <-chan time.Time
	// closing ends what hangs.
	closing chan struct{}

	mu   sync.Mutex
	to   string
	plan Plan
	done []Fault
	down bool
}

// NewFaultProxy returns a proxy in front of the server at an address, on a free port of this
// machine. A nil plan is none: everything passes unchanged.
func NewFaultProxy(to string, plan Plan) *FaultProxy {
	p := &FaultProxy{to: strings.TrimRight(to, "/"), plan: plan, closing: make(chan struct{}), wait: time.After,
		http: &http.Client{Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 256}}}
	p.front = httptest.NewServer(http.HandlerFunc(p.serve))
	return p
}

// URL is the proxy's own address.
func (p *FaultProxy) URL() string { return p.front.URL }

// SetPlan replaces the plan for the requests to come.
func (p *FaultProxy) SetPlan(plan Plan) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.plan = plan
}

// SetDown breaks every connection and refuses every call until it is set up again, as a server does
// that has died.
func (p *FaultProxy) SetDown(down bool) {
	p.mu.Lock()
	p.down = down
	p.mu.Unlock()
	if down {
		p.front.CloseClientConnections()
	}
}

// SetServer has the requests to come go to another server, as after one was started again.
func (p *FaultProxy) SetServer(to string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.to = strings.TrimRight(to, "/")
}

// Done are the faults there were.
func (p *FaultProxy) Done() []Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Fault(nil), p.done...)
}

// Close ends the proxy and cuts running streams off.
func (p *FaultProxy) Close() {
	close(p.closing)
	p.front.CloseClientConnections()
	p.front.Close()
	p.http.CloseIdleConnections()
}

// choose asks the plan; an empty server stands for one that is down.
func (p *FaultProxy) choose(r *http.Request) (f Fault, to string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down {
		return f, ""
	}
	if p.plan != nil {
		f = p.plan(r)
	}
	if f.Kind != "" && f.Kind != Pass {
		p.done = append(p.done, f)
	}
	return f, p.to
}

func (p *FaultProxy) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	f, to := p.choose(r)
	switch {
	case to == "":
		panic(http.ErrAbortHandler)
	case f.Kind == Broken:
		http.Error(w, `{"error":{"message":"failed on purpose","code":500}}`, http.StatusInternalServerError)
		return
	case f.Kind == Busy:
		w.Header().Set("Retry-After", strconv.Itoa(int(f.Wait/time.Second)))
		http.Error(w, `{"error":{"message":"busy on purpose","code":503}}`, http.StatusServiceUnavailable)
		return
	case f.Kind == Mute:
		p.hang(r)
	}
	res, err := forward(p.http, to, r, body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer res.Body.Close()
	for name, values := range res.Header {
		if name != "Content-Length" && name != "Transfer-Encoding" {
			w.Header()[name] = values
		}
	}
	w.WriteHeader(res.StatusCode)
	s := &failing{proxy: p, fault: f, request: r, out: w}
	stream := Exchange{Header: res.Header}.Stream()
	if err := eachPiece(res.Body, stream, s.take); err != nil && !s.ended {
		panic(http.ErrAbortHandler)
	}
}

// hang keeps a request until its client or the proxy ends it.
func (p *FaultProxy) hang(r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-p.closing:
	}
	panic(http.ErrAbortHandler)
}

// reset closes a connection so that the client sees it reset.
func reset(w http.ResponseWriter) {
	if connection, _, err := http.NewResponseController(w).Hijack(); err == nil {
		if tcp, ok := connection.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = connection.Close()
		return
	}
	panic(http.ErrAbortHandler)
}
