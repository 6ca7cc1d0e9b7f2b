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

// Bodies that are each allowed may not take more memory together than their role's room. Once they are
// decoded they take what their message does, until their request has ended.
func TestBodiesTogether(t *testing.T) {
	decoded, wait := make(chan struct{}), make(chan struct{})
	c := start(t, Options{BodyBytesMax: 1000, BodiesBytesMax: 26000}, func(s *Server) {
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
	if a := c.do("POST", "/test/read", json); a.status != 429 || a.code() != protocol.CodeBusy || !strings.Contains(a.body, "may take 26000") {
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

// A decoded body holds its room as long as its request does, by what the message takes: a short text may
// become a long list. One body alone is never refused for the room.
func TestDecodedBodiesAreCounted(t *testing.T) {
	decoded, wait := make(chan struct{}), make(chan struct{})
	var server *Server
	c := start(t, Options{BodyBytesMax: 1000, BodiesBytesMax: 20000}, func(s *Server) {
		server = s
		s.route("POST /test/list", roleAny, func(_ http.ResponseWriter, r *http.Request) error {
			var message struct{ List []int64 }
			if err := readJSON(r, &message); err != nil {
				return err
			}
			decoded <- struct{}{}
			<-wait
			return nil
		}, tokensBody)
	})
	json := `{"List":[` + strings.Repeat("0,", 400) + `0]}`
	ended := make(chan int)
	send := func() { ended <- c.do("POST", "/test/list", json).status }
	go send()
	<-decoded
	bound := server.current().Bounds[0]
	if bound.Name != boundBodies || bound.Held < 401*8 || bound.Held > 2*401*8 || bound.Binding {
		t.Errorf("a list of 401 numbers waits: %+v", bound)
	}
	go send()
	select {
	case status := <-ended:
		if status != 429 {
			t.Errorf("another beside it: %d", status)
		}
	case <-decoded:
		close(wait)
		t.Fatal("another passed beside it")
	}
	close(wait)
	if status := <-ended; status != 200 {
		t.Errorf("the first: %d", status)
	}
	go send()
	<-decoded
	if status := <-ended; status != 200 {
		t.Errorf("afterwards: %d", status)
	}
	for server.current().Bounds[0].Held != 0 { // it is given back once the reply is out
	}
	if bound := server.current().Bounds[0]; bound.Refused != 1 {
		t.Errorf("in the end: %+v", bound)
	}
}
