package api

import (
	"context"
	"testing"
	"time"

	"github.com/headway-rl/headway/api/protocol"
)

// heardReceivers keeps what receivers say.
type heardReceivers struct{ said []protocol.ReceiverRequest }

func (h *heardReceivers) Next(_ context.Context, _ string, req protocol.ReceiverRequest) (protocol.ReceiverReply, error) {
	h.said = append(h.said, req)
	return protocol.ReceiverReply{}, nil
}

// Who calls is the server's word: a body cannot say it.
func TestCallers(t *testing.T) {
	port := &heardReceivers{}
	c := start(t, Options{Tokens: testTokens(t)}, func(s *Server) {
		ports := *s.ports()
		ports.Receivers = port
		if err := s.Mount(ports); err != nil {
			t.Fatal(err)
		}
	})
	for _, role := range []string{"engine", "admin"} {
		if a := c.do("POST", "/api/v1/receivers/a", `{"engine":"e"}`, "Authorization", "Bearer "+secrets[role]); a.status != 200 {
			t.Fatalf("%s: %d %s", role, a.status, a.body)
		}
	}
	for _, body := range []string{`{"engine":"e","caller":{"peer":"10.0.0.1"}}`, `{"engine":"e","Caller":{"Peer":"10.0.0.1"}}`} {
		if a := c.do("POST", "/api/v1/receivers/a", body, "Authorization", "Bearer "+secrets["engine"]); a.status != 400 {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	if len(port.said) != 2 {
		t.Fatalf("%d calls were heard", len(port.said))
	}
	engine, admin := port.said[0].Caller, port.said[1].Caller
	if engine.Peer.String() != "127.0.0.1" || engine.Role != "engine" || engine.Token == "" || admin.Role != "admin" || admin.Token == engine.Token {
		t.Errorf("callers are %+v and %+v", engine, admin)
	}
}

// waitingReceivers wait for as long as they may.
type waitingReceivers struct{ entered chan struct{} }

func (w waitingReceivers) Next(ctx context.Context, _ string, _ protocol.ReceiverRequest) (protocol.ReceiverReply, error) {
	close(w.entered)
	<-ctx.Done()
	return protocol.ReceiverReply{}, context.Cause(ctx)
}

// A receiver that waits does not hold up the end of the server, and is told to come again.
func TestAReceiverWaitsAtTheEnd(t *testing.T) {
	port := waitingReceivers{make(chan struct{})}
	c := start(t, Options{Drain: time.Hour}, func(s *Server) {
		ports := *s.ports()
		ports.Receivers = port
		if err := s.Mount(ports); err != nil {
			t.Fatal(err)
		}
	})
	go func() {
		<-port.entered
		c.stop()
	}()
	if a := c.do("POST", "/api/v1/receivers/a", `{"engine":"e","wait_s":15}`); a.status != 503 || a.code() != protocol.CodeUnavailable {
		t.Errorf("%d %s", a.status, a.body)
	}
}
