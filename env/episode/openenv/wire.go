package openenv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/headway-rl/headway/env/sandbox"
)

// wire is a WebSocket on which one message is answered by one.
type wire struct {
	conn *websocket.Conn
	// answers has what the server says, read all the time: it would take us for dead if nobody read
	// its pings while the policy samples. It is closed when the connection ends, with the reason in ended.
	answers chan []byte
	ended   error
	stop    context.CancelFunc
	// busy: an answer is waited for.
	busy atomic.Bool
}

// dial opens a connection. It reads until hangUp.
func (s *Server) dial(ctx context.Context) (*wire, error) {
	conn, response, err := websocket.Dial(ctx, s.base.String()+"/ws", &websocket.DialOptions{HTTPClient: s.client, HTTPHeader: s.o.Header})
	if err != nil {
		class := sandbox.BackendDown
		if response != nil && response.StatusCode != http.StatusSwitchingProtocols {
			class = statusClass(response.StatusCode)
		}
		return nil, sandbox.Fail(class, "reset", "", "no WebSocket at %s/ws: %w", s.base, err)
	}
	conn.SetReadLimit(s.o.Message)
	reading, stop := context.WithCancel(context.Background())
	w := &wire{conn: conn, answers: make(chan []byte, 1), stop: stop}
	go w.read(reading)
	return w, nil
}

func (w *wire) read(ctx context.Context) {
	defer close(w.answers)
	for {
		kind, text, err := w.conn.Read(ctx)
		if err == nil && kind != websocket.MessageText {
			err = fmt.Errorf("%w: a binary message", errForeign)
		}
		if ctx.Err() != nil {
			err = errHungUp
		}
		if err != nil {
			w.ended = err
			return
		}
		select {
		case w.answers <- text:
		case <-ctx.Done():
			w.ended = errHungUp
			return
		}
	}
}

var (
	// errForeign is what no OpenEnv server says.
	errForeign = errors.New("not OpenEnv")
	errHungUp  = errors.New("the episode was closed")
)

// answer is a message of the server.
type answer struct {
	Type string
	Data json.RawMessage
}

// errorData is the data of an answer of type error.
type errorData struct {
	Message string
	Code    string
	Errors  []struct {
		Loc []any
		Msg string
	}
}

// ask sends a message and returns its answer: once, whatever happens. While it waits, the server is
// asked for signs of life every ping.
func (w *wire) ask(ctx context.Context, kind string, data any, ping time.Duration) (answer, error) {
	message := map[string]any{"type": kind}
	if data != nil {
		message["data"] = data
	}
	text, err := json.Marshal(message)
	if err != nil {
		return answer{}, fmt.Errorf("no message can be made: %w", err)
	}
	w.busy.Store(true)
	defer w.busy.Store(false)
	if early, there, err := w.early(); there || err != nil {
		return early, err
	}
	if err := w.conn.Write(ctx, websocket.MessageText, text); err != nil {
		return w.afterWrite(ctx, err)
	}
	return w.await(ctx, ping)
}

// early is what the server said unasked: full ones do, and end the connection. Anything but an error
// would be an answer too many, after which no answer could be told from the next.
func (w *wire) early() (answer, bool, error) {
	select {
	case text, open := <-w.answers:
		got, err := w.understand(text, open)
		if err == nil && got.Type != "error" {
			err = fmt.Errorf("%w: a message of the unexpected type %q", errForeign, got.Type)
		}
		return got, true, err
	default:
		return answer{}, false, nil
	}
}

// afterWrite is the answer where nothing could be written: perhaps the server has said why.
func (w *wire) afterWrite(ctx context.Context, err error) (answer, error) {
	select {
	case got, open := <-w.answers:
		if open {
			return w.understand(got, open)
		}
	case <-ctx.Done():
	}
	return answer{}, err
}

func (w *wire) await(ctx context.Context, ping time.Duration) (answer, error) {
	again := time.NewTicker(ping)
	defer again.Stop()
	alive := make(chan error, 1)
	asked := false
	for {
		select {
		case got, open := <-w.answers:
			return w.understand(got, open)
		case <-ctx.Done():
			return answer{}, ctx.Err()
		case <-again.C:
			if !asked {
				asked = true
				go func() { alive <- w.ping(ping) }()
			}
		case err := <-alive:
			if err != nil {
				return answer{}, err
			}
			asked = false
		}
	}
}

// ping asks for a sign of life. It ends with the connection at the latest.
func (w *wire) ping(within time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if err := w.conn.Ping(ctx); err != nil {
		return fmt.Errorf("no sign of life within %s: %v", within, err) // %v: it is not the time of whoever asks that ran out
	}
	return nil
}

func (w *wire) understand(text []byte, open bool) (answer, error) {
	if !open {
		return answer{}, w.ended
	}
	var a answer
	if err := json.Unmarshal(text, &a); err != nil || a.Type == "" {
		return answer{}, fmt.Errorf("%w: %.200q has no type", errForeign, text)
	}
	return a, nil
}

// hangUp ends the connection. A server that is not busy is told so and left to end it, for which it
// has a second; a busy one would not hear.
func (w *wire) hangUp() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if !w.busy.Load() && w.conn.Write(ctx, websocket.MessageText, []byte(`{"type":"close"}`)) == nil {
		w.drain(ctx)
	}
	w.stop()
	_ = w.conn.CloseNow() // it has nothing left to say
	w.drain(context.Background())
}

// drain reads until the reader is gone.
func (w *wire) drain(ctx context.Context) {
	for {
		select {
		case _, open := <-w.answers:
			if !open {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// lost is the class of a connection that ended.
func lost(err error) sandbox.Class {
	switch {
	case errors.Is(err, errForeign), errors.Is(err, websocket.ErrMessageTooBig):
		return sandbox.Protocol
	}
	return sandbox.Lost
}
