package openenv

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/headway-rl/headway/env/episode"
	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/taskset"
)

const (
	echoSchema = `{"action":{"properties":{"message":{"type":"string"}},"required":["message"],"type":"object"}}`
	observed   = `{"type":"observation","data":{"observation":{"text":"hi"},"reward":null,"done":false}}`
)

// faulty is a server whose WebSocket does as talk says, after it was asked for a schema.
func faulty(t *testing.T, talk func(ctx context.Context, c *websocket.Conn)) string {
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/ws" {
			_, _ = io.WriteString(w, echoSchema)
			return
		}
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer c.CloseNow()
		talk(r.Context(), c)
	}))
	t.Cleanup(front.Close)
	return front.URL
}

// says reads a message and writes each text in turn, one for each message that is read.
func says(texts ...string) func(context.Context, *websocket.Conn) {
	return func(ctx context.Context, c *websocket.Conn) {
		for _, text := range texts {
			if _, _, err := c.Read(ctx); err != nil {
				return
			}
			_ = c.Write(ctx, websocket.MessageText, []byte(text))
		}
	}
}

func TestFailuresAtReset(t *testing.T) {
	for name, test := range map[string]struct {
		talk  func(context.Context, *websocket.Conn)
		class sandbox.Class
	}{
		"hangs up":        {says(), sandbox.Lost},
		"no JSON":         {says("hello"), sandbox.Protocol},
		"no type":         {says("{}"), sandbox.Protocol},
		"another type":    {says(`{"type":"state","data":{}}`), sandbox.Protocol},
		"no observation":  {says(`{"type":"observation","data":{"reward":1}}`), sandbox.Protocol},
		"done":            {says(`{"type":"observation","data":{"observation":{},"done":true}}`), sandbox.Protocol},
		"a strange error": {says(`{"type":"error","data":{"message":"m","code":"NEW"}}`), sandbox.Protocol},
		"no such reset":   {says(`{"type":"error","data":{"message":"m","code":"VALIDATION_ERROR"}}`), sandbox.BadTask},
		"no environment":  {says(`{"type":"error","data":{"message":"m","code":"FACTORY_ERROR"}}`), sandbox.StartFailed},
		"session":         {says(`{"type":"error","data":{"message":"m","code":"SESSION_ERROR"}}`), sandbox.StartFailed},
		"raises":          {says(`{"type":"error","data":{"message":"m","code":"EXECUTION_ERROR"}}`), sandbox.StartFailed},
		"binary": {func(ctx context.Context, c *websocket.Conn) {
			_ = c.Write(ctx, websocket.MessageBinary, []byte(observed))
			_, _, _ = c.Read(ctx)
		}, sandbox.Protocol},
	} {
		t.Run(name, func(t *testing.T) {
			w := mustServer(t, Options{URL: faulty(t, test.talk)}).World("a", 1)
			defer w.Close(context.Background())
			if _, err := w.Begin(t.Context(), nil); sandbox.ClassOf(err) != test.class {
				t.Errorf("%v, expected class %s", err, test.class)
			}
		})
	}
}

func TestFailuresOfAStep(t *testing.T) {
	for name, test := range map[string]struct {
		answer string
		class  sandbox.Class
	}{
		"garbage":      {"\x00\xff", sandbox.Protocol},
		"wrong reward": {`{"type":"observation","data":{"observation":{},"reward":"much","done":false}}`, sandbox.VerifierProtocol},
		"huge reward":  {`{"type":"observation","data":{"observation":{},"reward":1e999,"done":false}}`, sandbox.VerifierProtocol},
		"session":      {`{"type":"error","data":{"message":"m","code":"SESSION_ERROR"}}`, sandbox.Lost},
		"unknown type": {`{"type":"error","data":{"message":"m","code":"UNKNOWN_TYPE"}}`, sandbox.Protocol},
		"error":        {`{"type":"error","data":7}`, sandbox.Protocol},
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := begun(t, mustServer(t, Options{URL: faulty(t, says(observed, test.answer))}), "a", 1, nil)
			answer, err := w.Act(t.Context(), episode.Message{Text: "hi"})
			if sandbox.ClassOf(err) != test.class || answer.Rewarded {
				t.Errorf("%+v, %v; expected class %s", answer, err, test.class)
			}
		})
	}
}

// A step that the connection was lost with is not sent again: nobody knows whether it was taken.
func TestStepsAreNeverSentTwice(t *testing.T) {
	steps := make(chan string, 8)
	w, _ := begun(t, mustServer(t, Options{URL: faulty(t, func(ctx context.Context, c *websocket.Conn) {
		says(observed)(ctx, c)
		_, text, _ := c.Read(ctx)
		steps <- string(text)
	})}), "a", 1, nil)
	for range 2 {
		if _, err := w.Act(t.Context(), episode.Message{Text: "hi"}); sandbox.ClassOf(err) != sandbox.Lost {
			t.Errorf("%v, expected class lost", err)
		}
	}
	if len(steps) != 1 {
		t.Errorf("%d steps were sent, expected one", len(steps))
	}
}

// An answer too many cannot be told from the next step's.
func TestAnsweredTwice(t *testing.T) {
	read := make(chan error, 1)
	w, _ := begun(t, mustServer(t, Options{URL: faulty(t, func(ctx context.Context, c *websocket.Conn) {
		says(observed)(ctx, c)
		_ = c.Write(ctx, websocket.MessageText, []byte(observed))
		ctx = c.CloseRead(ctx)
		read <- c.Ping(ctx) // answered by who has read what came before
		<-ctx.Done()
	})}), "a", 1, nil)
	if err := <-read; err != nil {
		t.Fatal(err)
	}
	if _, err := w.Act(t.Context(), episode.Message{Text: "hi"}); sandbox.ClassOf(err) != sandbox.Protocol {
		t.Errorf("%v, expected class protocol", err)
	}
}

// While the policy samples, the server's pings are answered.
func TestAnswersPingsBetweenSteps(t *testing.T) {
	alive := make(chan error, 1)
	begun(t, mustServer(t, Options{URL: faulty(t, func(ctx context.Context, c *websocket.Conn) {
		says(observed)(ctx, c)
		ctx = c.CloseRead(ctx)
		alive <- c.Ping(ctx)
		<-ctx.Done()
	})}), "a", 1, nil)
	if err := <-alive; err != nil {
		t.Errorf("the server's ping was not answered: %v", err)
	}
}

// pipes is a listener whose connections are in memory, so that they have a bubble's clock.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, open := <-p; open {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// inMemory is a server of OpenEnv that is spoken to in memory.
func inMemory(t *testing.T, o Options, handler http.HandlerFunc) *Server {
	t.Helper()
	listener := make(pipes)
	var handled sync.WaitGroup
	front := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handled.Add(1)
		defer handled.Done()
		handler(w, r)
	})}
	go func() { _ = front.Serve(listener) }()
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		listener <- theirs
		return ours, nil
	}}
	t.Cleanup(func() {
		handled.Wait()
		transport.CloseIdleConnections()
		_ = front.Close()
	})
	o.URL = "http://pipe"
	s := mustServer(t, o)
	s.client = &http.Client{Transport: transport}
	return s
}

// A server that is busy but gives signs of life is waited for; one that gives none is lost.
func TestPingsWhileItWaits(t *testing.T) {
	const took = 2 * time.Minute // with a ping a minute
	for _, alive := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			pinged := make(chan struct{}, 64)
			w, _ := begun(t, inMemory(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/ws" {
					_, _ = io.WriteString(w, echoSchema)
					return
				}
				c, err := websocket.Accept(w, r, &websocket.AcceptOptions{OnPingReceived: func(context.Context, []byte) bool {
					pinged <- struct{}{}
					return alive
				}})
				if err != nil {
					t.Error(err)
					return
				}
				defer c.CloseNow()
				says(observed)(r.Context(), c)
				_, _, _ = c.Read(r.Context())
				reading := c.CloseRead(r.Context())
				<-pinged
				if alive {
					<-pinged
					_ = c.Write(r.Context(), websocket.MessageText, []byte(observed))
				}
				<-reading.Done()
			}), "a", 1, nil)
			began := time.Now()
			_, err := w.Act(t.Context(), episode.Message{Text: "hi"})
			if want := map[bool]sandbox.Class{false: sandbox.Lost}[alive]; sandbox.ClassOf(err) != want || alive != (err == nil) || time.Since(began) != took {
				t.Errorf("a busy server, alive %t: %v after %v, expected class %q after %v", alive, err, time.Since(began), want, took)
			}
		})
	}
}

// Close ends a step that is waited for, and whoever's time runs out gets their own error.
func TestCloseAndCancel(t *testing.T) {
	taken := make(chan struct{})
	url := faulty(t, func(ctx context.Context, c *websocket.Conn) {
		says(observed)(ctx, c)
		_, _, _ = c.Read(ctx)
		taken <- struct{}{}
		_, _, _ = c.Read(ctx)
	})
	w, _ := begun(t, mustServer(t, Options{URL: url}), "a", 1, nil)
	go func() { <-taken; _ = w.Close(context.Background()) }()
	if _, err := w.Act(t.Context(), episode.Message{Text: "hi"}); sandbox.ClassOf(err) != sandbox.Lost {
		t.Errorf("closed: %v, expected class lost", err)
	}
	w, _ = begun(t, mustServer(t, Options{URL: url}), "b", 1, nil)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-taken; cancel() }()
	if _, err := w.Act(ctx, episode.Message{Text: "hi"}); !errors.Is(err, context.Canceled) || sandbox.ClassOf(err) != "" {
		t.Errorf("cancelled: %v, expected the caller's own error", err)
	}
	if _, err := w.Act(t.Context(), episode.Message{Text: "hi"}); err == nil {
		t.Error("a step after one that was given up was taken")
	}
}

// Servers that are no OpenEnv, or do not let anybody in.
func TestStatusOfTheServer(t *testing.T) {
	for status, class := range map[int]sandbox.Class{
		http.StatusNotFound: sandbox.Protocol, http.StatusUnauthorized: sandbox.Refused,
		http.StatusTooManyRequests: sandbox.Quota, http.StatusBadGateway: sandbox.BackendDown,
	} {
		front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
		if err := mustServer(t, Options{URL: front.URL}).Check(t.Context()); sandbox.ClassOf(err) != class {
			t.Errorf("HTTP %d: %v, expected class %s", status, err, class)
		}
		front.Close()
		if err := mustServer(t, Options{URL: front.URL}).Check(t.Context()); sandbox.ClassOf(err) != sandbox.BackendDown {
			t.Errorf("nobody there: %v", err)
		}
	}
}

func TestOptionsThatCannotBe(t *testing.T) {
	for _, o := range []Options{{URL: "localhost:8000"}, {URL: "ws://h"}, {URL: "http://h", Mode: "guess"}, {URL: "http://h", Mode: JSON, Field: "f"}} {
		if _, err := New(o); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
	task := &taskset.Task{ID: "t1", Fields: map[string]json.RawMessage{"reset": json.RawMessage(`[1]`)}}
	if _, err := mustServer(t, Options{URL: "http://h"}).World("a", 1).Begin(t.Context(), task); err == nil || !strings.Contains(err.Error(), "t1") {
		t.Errorf("a reset that is no object: %v", err)
	}
}

// Modes are chosen by the action's schema, and what cannot be is refused with what there is.
func TestModes(t *testing.T) {
	const two = `{"properties":{"a":{"type":"string"},"b":{"type":"string"}},"required":["a","b"]}`
	for _, test := range []struct {
		action, field string
		mode, want    Mode
		err           string
	}{
		{`{"properties":{"metadata":{"type":"object"},"m":{"type":"string"}},"required":["m"]}`, "", Auto, Text, ""},
		{two, "", Auto, Act, ""},
		{two, "", JSON, JSON, ""},
		{two, "b", Auto, Text, ""},
		{two, "c", Auto, "", "it has a, b"},
		{two, "", Text, "", "has to be named"},
		{`{"properties":{"metadata":{}}}`, "", Auto, Tools, ""},
		{`{"properties":{"tool_name":{},"arguments":{}}}`, "", Auto, Tools, ""},
		{`7`, "", Auto, "", "no JSON Schema"},
	} {
		made, err := readSchema(json.RawMessage(test.action), test.mode, test.field)
		switch {
		case test.err == "" && (err != nil || made.mode != test.want):
			t.Errorf("%s by %q: %+v, %v", test.action, test.mode, made, err)
		case test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)):
			t.Errorf("%s by %q: %v, expected %q", test.action, test.mode, err, test.err)
		}
	}
}

func TestObjectIn(t *testing.T) {
	for text, want := range map[string]string{
		` {"a":1} `:                              `{"a":1}`,
		"So:\n```json\n{\"a\":2}\n```\nDone.":    `{"a":2}`,
		"```{\"a\":1}``` then ```\n{\"a\":3}```": `{"a":3}`,
		"```python\n{}\n```":                     "",
		`[1]`:                                    "",
		`{"a":1} {"b":2}`:                        "",
		"":                                       "",
	} {
		if got, err := objectIn(text); string(got) != want || (err == nil) != (want != "") {
			t.Errorf("%q: %s, %v; expected %q", text, got, err, want)
		}
	}
}

func TestCut(t *testing.T) {
	if got := cut("aéé", 2); got != "a\n[4 more bytes]" {
		t.Errorf("%q", got)
	}
}
