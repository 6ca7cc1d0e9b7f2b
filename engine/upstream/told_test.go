package upstream

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/loop/port"
)

// TestToldTogether: tokens that have arrived together are told of together, up to a bound. One that comes alone is told of at once.
func TestToldTogether(t *testing.T) {
	const events = 96
	for _, together := range []int{1, 2, 48} {
		conn := newCannedConn(events / together)
		text := strings.Repeat(benchEvent, together)
		conn.piece = fmt.Appendf(nil, "%x\r\n%s\r\n", len(text), text)
		s, err := NewServer(ServerOptions{URL: "http://canned", Dial: func(context.Context, string, string) (net.Conn, error) { return conn, nil }})
		if err != nil {
			t.Fatal(err)
		}
		e, err := New(Options{Name: "e", Slots: 1, Server: s, Dialect: benchDialect{}})
		if err != nil {
			t.Fatal(err)
		}
		serveVersion(t, e, 0)
		var told port.Delta
		calls, most := 0, 0
		g, err := e.Generate(t.Context(), port.GenerateRequest{Prompt: []int32{1}, MaxTokens: events, OnTokens: func(d port.Delta) {
			calls, most = calls+1, max(most, len(d.Tokens))
			told.Tokens, told.Logprobs, told.Text = append(told.Tokens, d.Tokens...), append(told.Logprobs, d.Logprobs...), told.Text+d.Text
		}})
		if err != nil || len(g.Tokens) != events {
			t.Fatalf("%d together: %d tokens of %d, %v", together, len(g.Tokens), events, err)
		}
		if !slices.Equal(told.Tokens, g.Tokens) || !slices.Equal(told.Logprobs, g.Logprobs) || told.Text != g.Text {
			t.Errorf("%d together: told of %d tokens and %d bytes of text, want %d and %d", together, len(told.Tokens), len(told.Text), len(g.Tokens), len(g.Text))
		}
		if most > tellMost || together == 1 && calls != events || together == 2 && calls > events/2+1 || together == 48 && calls > events/8 {
			t.Errorf("%d together: told %d times, of up to %d tokens", together, calls, most)
		}
		close(conn.asked)
		e.Close()
	}
}
