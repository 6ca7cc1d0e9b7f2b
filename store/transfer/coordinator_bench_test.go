package transfer_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/store/transfer"
)

// BenchmarkLoadEveryone has every receiver load a version, each the only stage of its engine, and
// switch to it. Nothing is moved, so that the time is the coordinator's.
func BenchmarkLoadEveryone(b *testing.B) {
	for _, n := range []int{8, 64, 512} {
		b.Run(fmt.Sprintf("receivers=%d", n), func(b *testing.B) {
			c := transfer.NewCoordinator(transfer.Options{Origin: "/t"})
			ctx, cancel := context.WithCancel(context.Background())
			var polling, known sync.WaitGroup
			known.Add(n)
			for i := range n {
				polling.Go(func() { obey(ctx, c, fmt.Sprintf("e%d", i), known.Done) })
			}
			known.Wait()
			version := loop.Version(0)
			for b.Loop() {
				version++
				var loading sync.WaitGroup
				for i := range n {
					loading.Go(func() {
						engine := fmt.Sprintf("e%d", i)
						if err := c.Load(ctx, engine, version); err != nil {
							b.Error(err)
						}
						if err := c.Switch(ctx, engine, version); err != nil {
							b.Error(err)
						}
					})
				}
				loading.Wait()
			}
			cancel()
			polling.Wait()
		})
	}
}

// obey is a receiver that does at once what it is told; known is called when it has been heard.
func obey(ctx context.Context, c *transfer.Coordinator, engine string, known func()) {
	req := protocol.ReceiverRequest{Engine: engine, Served: loop.NoVersion, Loaded: loop.NoVersion}
	for first := true; ; first = false {
		command, err := c.Next(ctx, engine, req)
		if err != nil {
			return
		}
		if first {
			known()
		}
		req.Done, req.WaitS = command.Seq, 60
		switch command.Kind {
		case protocol.ReceiveLoad:
			req.Loaded = command.Version
		case protocol.ReceiveSwitch:
			req.Served, req.Loaded = command.Version, loop.NoVersion
		}
	}
}
