package api

import (
	"bytes"
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

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/channel"
)

// plane is a control plane whose state a test sets.
type plane struct {
	mu     sync.Mutex
	state  protocol.Status
	notYet error
	events chan []byte
	// subscribed gets a value for every subscriber.
	subscribed chan struct{}
}

func newPlane() *plane {
	verl := map[string]float64{}
	for i, f := range verlFigures {
		verl[f.name] = float64(i)
	}
	return &plane{state: protocol.Status{Verl: verl, Run: "reverse", State: "running", Version: 17, Steps: 17, Policy: "bounded",
		Ledger:   protocol.Ledger{Ledger: loop.Ledger{Admitted: 10, InFlight: 4, Trained: 6}, Balanced: true},
		HeldOut:  &protocol.HeldOut{Version: 15, Accuracy: 0.5, Reward: 0.75, Scored: 8},
		Scoring:  []protocol.Scoring{{Channel: "teacher", Waiting: 3, WaitedS: 1.5, Servers: []protocol.ScoringServer{{Name: "big", Running: 2, Slots: 4, Calls: 8, Failures: 1, Seconds: 2.5}}}},
		Failures: protocol.Failures{Environment: 3, Timeout: 2, Scorer: 4, Data: 1, InfraRatio: 0.5, DataRatio: 0.1},
		Trainer:  protocol.Trainer{Channels: []protocol.ChannelSummary{{Header: channel.Header{Name: "routed_experts"}, Rows: 90, Absent: 10, Lost: 3}}},
		Sender: &protocol.Sender{Name: "t", State: "serving", SilentS: 4, Holds: []loop.Version{15, 16}, Groups: []string{"a", "b"}, Waiting: []string{"e9"}, SentVersion: 14, Sends: 9, FailedSends: 2,
			Joining: []protocol.SenderJoining{{Engine: "e1"}, {Engine: "e2", Late: true}, {Engine: "e3", Late: true}, {Engine: "e4", Late: true}}},
		Control: &protocol.Control{TargetMean: 2, TargetShare: 0.95, ControlStatus: loop.ControlStatus{State: "correcting", MeasuredMean: 2.5, MeasuredShare: -1, Steps: 40, HeldSteps: 30,
			HeldBatches: 20, Moves: 3, Settings: []loop.SettingStatus{{Name: "hold", Value: 0.2, Most: 0.3}}}},
		Environment: &protocol.EnvironmentStatus{Kind: "tasks", Verifier: &protocol.Verifier{Kind: "exact", Failures: map[string]int64{"verifier_crash": 1}, VerdictS: protocol.Quantiles{P50: 0.5}},
			Episodes: protocol.Episodes{Scored: 9, Failed: 2, Failures: map[string]int64{"lost": 2}, Limits: map[string]int64{"timeout": 3},
				Parts: []protocol.Spent{{Part: "tool", TotalS: 20}}, Whole: protocol.Spent{P99S: 5}}}},
		events: make(chan []byte), subscribed: make(chan struct{}, 8)}
}

func (p *plane) Status() protocol.Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

func (p *plane) Engines() []protocol.EngineVersion { return nil }

func (p *plane) Ready() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.notYet
}

func (p *plane) setReady(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.notYet = err
}

func (p *plane) Subscribe(context.Context) <-chan []byte {
	p.subscribed <- struct{}{}
	return p.events
}

// logs collects everything that a server says.
type logs struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logs) f(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintf(&l.text, format+"\n", args...)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// client speaks to a server over TCP.
type client struct {
	t       *testing.T
	server  *Server
	plane   *plane
	logs    *logs
	address string
	// stop ends the context of Serve, whose result is ended.
	stop  context.CancelFunc
	ended chan error
}

// start serves on a free port, with the routes that a test adds.
func start(t *testing.T, o Options, add func(s *Server)) *client {
	t.Helper()
	c := &client{t: t, plane: newPlane(), logs: &logs{}, ended: make(chan error, 1)}
	o.Logf, o.Debugf = c.logs.f, c.logs.f
	server, err := New(o, Ports{Plane: c.plane})
	if err != nil {
		t.Fatal(err)
	}
	c.server = server
	if add != nil {
		add(server)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.address = listener.Addr().String()
	ctx, stop := context.WithCancel(context.Background())
	c.stop = stop
	go func() { c.ended <- server.Serve(ctx, listener); close(c.ended) }()
	t.Cleanup(func() {
		stop()
		for err := range c.ended {
			if err != nil {
				t.Errorf("Serve: %v", err)
			}
		}
	})
	return c
}

// answer is a reply that was read wholly.
type answer struct {
	status int
	header http.Header
	body   string
}

// code is the code of a refused request.
func (a answer) code() protocol.Code {
	var body protocol.ErrorBody
	if json.Unmarshal([]byte(a.body), &body) != nil {
		return ""
	}
	return body.Error.Code
}

// do sends a request and reads its answer; headers are pairs of name and value.
func (c *client) do(method, path, body string, headers ...string) answer {
	c.t.Helper()
	a, err := c.try(method, path, body, headers...)
	if err != nil {
		c.t.Fatal(err)
	}
	return a
}

func (c *client) try(method, path, body string, headers ...string) (answer, error) {
	scheme := "http://"
	request, err := http.NewRequest(method, scheme+c.address+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			request.Host = headers[i+1]
		}
		request.Header.Set(headers[i], headers[i+1])
	}
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	response, err := transport.RoundTrip(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, string(text)}, err
}

// raw sends bytes as they are and returns all that comes back.
func (c *client) raw(text string) string {
	c.t.Helper()
	connection, err := net.Dial("tcp", c.address)
	if err != nil {
		c.t.Fatal(err)
	}
	defer connection.Close()
	if _, err := io.WriteString(connection, text); err != nil {
		c.t.Logf("writing: %v", err)
	}
	reply, err := io.ReadAll(connection)
	if err != nil && len(reply) == 0 {
		c.t.Fatal(err)
	}
	return string(reply)
}

// echo reads a message and answers with it.
func echo(w http.ResponseWriter, r *http.Request) error {
	var message protocol.TouchRequest
	if err := readJSON(r, &message); err != nil {
		return err
	}
	return writeJSON(w, message)
}

// secrets of the tests, one of each role.
var secrets = map[string]string{
	"trainer": "trainer-secret-0123456789", "environment": "environment-secret-012345",
	"engine": "engine-secret-0123456789", "viewer": "viewer-secret-0123456789", "admin": "admin-secret-0123456789",
}

func testTokens(t *testing.T) *Tokens {
	t.Helper()
	var text strings.Builder
	for role, secret := range secrets {
		fmt.Fprintf(&text, "%s %s\n", role, secret)
	}
	tokens, err := ParseTokens(strings.NewReader(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

var errStandby = errors.New("standby: another process is the writer")
