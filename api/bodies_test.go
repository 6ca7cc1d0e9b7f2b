package api

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/headway-rl/headway/api/protocol"
)

// Bodies without tokens are small, whatever those with tokens may be.
func TestBodiesAreSmallWithoutTokens(t *testing.T) {
	c := start(t, Options{}, func(s *Server) {
		s.route("POST /test/small", roleAny, readAll)
		s.route("POST /test/tokens", roleAny, readAll, tokensBody)
	})
	body := strings.Repeat("x", smallBodyBytesMax+1)
	for path, want := range map[string]int{"/test/small": 413, "/test/tokens": 200} {
		for _, headers := range [][]string{nil, {"Idempotency-Key", "k"}} {
			if a := c.do("POST", path, body, headers...); a.status != want {
				t.Errorf("%s %v: %d %.200s, want %d", path, headers, a.status, a.body, want)
			}
		}
	}
}

// A client whose body is refused unread has sent it and hears why, every time: a connection
// closed with bytes unread would be reset, and the answer lost.
func TestRefusalsAreHeard(t *testing.T) {
	c := start(t, Options{}, func(s *Server) { s.route("POST /test/small", roleAny, readAll) })
	body := strings.Repeat("x", unreadBytesMax-1)
	for range 20 {
		if a := c.do("POST", "/test/small", body); a.status != 413 {
			t.Fatalf("too large a body: %d %.200s", a.status, a.body)
		}
		if a := c.do("POST", "/nowhere", body); a.status != 404 {
			t.Fatalf("a path that is not there: %d %.200s", a.status, a.body)
		}
	}
}

// Bodies that are each allowed may not take more together than their role's room, which is
// free again once they are decoded, also while their request waits, and when one broke off.
func TestBodiesTogether(t *testing.T) {
	decoded, wait := make(chan struct{}), make(chan struct{})
	c := start(t, Options{BodyBytesMax: 1000, BodiesBytesMax: 1500}, func(s *Server) {
		s.route("POST /test/wait", roleAny, func(_ http.ResponseWriter, r *http.Request) error {
			var message struct{ Text string }
			if err := readJSON(r, &message); err != nil {
				return err
			}
			decoded <- struct{}{}
			<-wait
			return nil
		}, tokensBody)
		s.route("POST /test/read", roleAny, func(_ http.ResponseWriter, r *http.Request) error {
			if _, err := io.ReadAll(r.Body); err != nil {
				return err
			}
			decoded <- struct{}{}
			<-wait
			return nil
		}, tokensBody)
	})
	json := `{"Text":"` + strings.Repeat("x", 900) + `"}`
	ended := make(chan int)
	send := func(path string) { ended <- c.do("POST", path, json).status }
	for range 3 {
		go send("/test/wait")
		<-decoded
	}
	go send("/test/read")
	<-decoded
	if a := c.do("POST", "/test/read", json); a.status != 429 || a.code() != protocol.CodeBusy || !strings.Contains(a.body, "1500 bytes") {
		t.Errorf("beyond the room: %d %s", a.status, a.body)
	}
	if a := c.do("POST", "/test/wait", json); a.status != 429 {
		t.Errorf("beyond the room, to be decoded: %d %s", a.status, a.body)
	}
	close(wait)
	for range 4 {
		if status := <-ended; status != 200 {
			t.Errorf("within the room: %d", status)
		}
	}
	go send("/test/read")
	<-decoded
	if status := <-ended; status != 200 {
		t.Errorf("afterwards: %d", status)
	}
}
