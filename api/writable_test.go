//go:build unix

package api

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/headway-rl/headway/internal/connections"
)

// A connection whose client does not read is no longer writable, before a write would wait; it is
// again once the client has read.
func TestWritable(t *testing.T) {
	for _, raw := range []bool{false, true} {
		t.Run(fmt.Sprintf("raw %t", raw), func(t *testing.T) { testWritable(t, raw) })
	}
}

func testWritable(t *testing.T, raw bool) {
	full, drained := make(chan bool, 1), make(chan struct{})
	line := make([]byte, 512)
	server := &http.Server{ConnContext: withConnection, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		to := &reply{ResponseWriter: w, control: http.NewResponseController(w), patience: 30 * time.Second, room: roomOf(r.Context(), raw)}
		to.extend()
		for range 256 << 10 {
			if !to.Writable() {
				break
			}
			if _, err := to.Write(line); err != nil {
				t.Error(err)
			}
			_ = to.control.Flush()
		}
		full <- to.Writable()
		<-drained
		for until := time.Now().Add(30 * time.Second); !to.Writable() && time.Now().Before(until); {
			_ = to.control.Flush()
		}
		full <- to.Writable()
	})}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		accepted := listener
		if raw {
			accepted = rawListener{listener}
		}
		_ = connections.New(2).Serve(server, accepted)
	}()
	defer server.Close()
	res, err := http.Get("http://" + listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if <-full {
		t.Error("128 MiB that nobody reads, and there is room")
	}
	read := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, res.Body)
		read <- err
	}()
	close(drained)
	if !<-full {
		t.Error("all is read, and there is no room")
	}
	if err := <-read; err != nil {
		t.Error(err)
	}
}

// Where nobody knows the connection, nobody knows of room.
func TestWritableUnknown(t *testing.T) {
	if (&reply{room: roomOf(context.Background(), false)}).Writable() {
		t.Error("there is room on no connection")
	}
}
