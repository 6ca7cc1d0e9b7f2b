package remote

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/api/protocol"
)

// A process that connects under the name of a live one is warned of, and the one before learns why its lease is gone.
func TestAnotherProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var said []string
		r := started(t, func(o *Options) {
			o.Logf = func(format string, args ...any) {
				mu.Lock()
				defer mu.Unlock()
				said = append(said, fmt.Sprintf(format, args...))
			}
		})
		connect := func(rank int) {
			_, err := r.Connect(t.Context(), protocol.ConnectRequest{Trainer: "a", Version: 0, WorldSize: 2, Rank: rank,
				Caller: protocol.Caller{Peer: netip.MustParseAddr("192.0.2.7")}})
			r.must(err)
		}
		warned := func() (n int) {
			mu.Lock()
			defer mu.Unlock()
			for _, line := range said {
				if strings.Contains(line, `warning: rank 0 of trainer "a" from 192.0.2.7 connected again, 2.0 s after its last word`) {
					n++
				}
			}
			return n
		}
		connect(0)
		connect(1) // its first word
		out := r.train(groups(5, 1, 0, 4))
		l := r.lease("a", 0, 2)
		if len(said) != 0 {
			t.Fatalf("said %q", said)
		}
		time.Sleep(2 * time.Second)
		connect(0)
		r.returned(out)
		if warned() != 1 {
			t.Fatalf("said %q", said)
		}
		time.Sleep(3 * time.Second)
		_, err := r.publish(ofLease("a", l), model(1, 2))
		r.refused(err, protocol.CodeExpired, `3.0 s ago: another process connected as rank 0 of trainer "a" from 192.0.2.7`)
		time.Sleep(2 * r.opt.Lease) // a restart after a silence is none to warn of
		connect(0)
		if warned() != 1 {
			t.Fatalf("said %q", said)
		}
	})
}

// A call of a rank that is gone, which still waits as its trainer connects anew with fewer ranks, takes no share: nobody would
// renew it, and the batch would go back under the ranks that train.
func TestACallOfTheWorldBeforeTakesNoShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, nil)
		_, err := r.Connect(t.Context(), protocol.ConnectRequest{Trainer: "a", Version: 0, WorldSize: 2, Rank: 1})
		r.must(err)
		gone := make(chan error, 1)
		go func() {
			_, err := r.Lease(t.Context(), protocol.LeaseRequest{Trainer: "a", Rank: 1, WorldSize: 2, WaitS: 60})
			gone <- err
		}()
		synctest.Wait()
		_, err = r.Connect(t.Context(), protocol.ConnectRequest{Trainer: "a", Version: 0, WorldSize: 1})
		r.must(err)
		out := r.train(groups(5, 1, 0, 4))
		synctest.Wait()
		r.refused(<-gone, protocol.CodeConflict, "rank 1 leases for a world of 2, but trainer a connected with 1")
		l := r.lease("a", 0, 1)
		for range 3 {
			time.Sleep(40 * time.Second) // of the bubble's own clock
			_, err = r.Renew(t.Context(), l.Lease, protocol.RenewRequest{Trainer: "a", Attempt: l.Attempt})
			r.must(err)
		}
		_, err = r.publish(ofLease("a", l), model(1, 2))
		r.must(err)
		r.trained(out)
	})
}
