package api

import (
	"context"
	"testing"

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
