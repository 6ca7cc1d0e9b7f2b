package client

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestResend: a request whose kept connection closes is a try that failed. net/http would send it again at once, where
// the Python client pauses and moves on.
func TestResend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var seen []time.Time
		var keys []string
		serve := func(connection net.Conn) {
			defer connection.Close()
			reader := bufio.NewReader(connection)
			for {
				request, err := http.ReadRequest(reader)
				if err != nil {
					return
				}
				if _, err := io.Copy(io.Discard, request.Body); err != nil {
					return
				}
				mu.Lock()
				seen, keys = append(seen, time.Now()), append(keys, request.Header.Get("Idempotency-Key"))
				count := len(seen)
				mu.Unlock()
				if count == 2 {
					return
				}
				_, _ = io.WriteString(connection, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
			}
		}
		dialed := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			near, far := net.Pipe()
			go serve(far)
			return near, nil
		}}
		defer dialed.CloseIdleConnections()
		transport, err := NewTransport(Options{HTTP: &http.Client{Transport: dialed}, URLs: []string{"http://a"}})
		if err != nil {
			t.Fatal(err)
		}
		defer transport.Close()
		for range 2 {
			if err := transport.post(t.Context(), call{path: "/x", message: map[string]any{}}, &struct{}{}); err != nil {
				t.Fatal(err)
			}
		}
		if len(seen) != 3 || keys[1] != keys[2] || keys[0] == keys[1] {
			t.Fatalf("the server saw %d requests with the keys %v, want 3 and the last two alike", len(seen), keys)
		}
		if pause := seen[2].Sub(seen[1]); pause < pauseFirst/2 {
			t.Errorf("the request came again after %v, want a pause of at least %v", pause, pauseFirst/2)
		}
	})
}
