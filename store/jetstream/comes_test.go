package jetstream

import (
	"context"
	"net"
	"testing"
	"time"
)

// TestServersThatComeLate: a start waits for servers whose name cannot be looked up yet, or whose machine does not answer yet, as for
// those that do not listen yet.
func TestServersThatComeLate(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // it says nothing, as a machine that does not answer
	must(t, err)
	defer silent.Close()
	for _, url := range []string{"nats://headway-nats.invalid:4222", "nats://" + freeAddress(t), "nats://" + silent.Addr().String()} {
		t.Run(url, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			began := time.Now()
			_, err := Open(ctx, Options{URL: url, Run: "late"})
			if ctx.Err() == nil {
				t.Errorf("it is given up after %v: %v", time.Since(began).Round(time.Millisecond), err)
			}
		})
	}
}
