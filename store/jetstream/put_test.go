package jetstream

import (
	"errors"
	"sync"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// TestSmallPayloadsOfASmallServer: many small payloads at once fill a message, whose header needs room, too.
func TestSmallPayloadsOfASmallServer(t *testing.T) {
	url := startServer(t, func(o *server.Options) { o.MaxPayload = 64 << 10 })
	s := open(t, Options{URL: url, Run: "smallserver"})
	begin(t, s)
	var wait sync.WaitGroup
	errs := make([]error, 1024)
	for i := range errs {
		wait.Go(func() {
			x := sized(12345, 860+(i%8)*20)
			x.ID.Sample = int32(i)
			errs[i] = s.PutSample(x)
		})
	}
	wait.Wait()
	must(t, errors.Join(errs...))
}
