package jetstream

import (
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/headway-rl/headway/store/storetest"
)

// refusing lets nobody in, and says the connection of each try.
type refusing chan string

// Check implements server.Authentication.
func (r refusing) Check(c server.ClientAuthentication) bool {
	select {
	case r <- c.GetOpts().Name:
	default:
	}
	return false
}

// least is the smallest number of tries.
func least(tries map[string]int) int { return slices.Min(slices.Collect(maps.Values(tries))) }

// TestServerThatRefusesForAWhile: a server that does not know a user for a moment, as behind a restart before it has its accounts, or
// before a file of credentials is written anew, ends no connection for good: neither the writer's nor a cell's.
func TestServerThatRefusesForAWhile(t *testing.T) {
	dir, port := t.TempDir(), -1
	refused := make(refusing)
	start := func(knows bool) *server.Server {
		return runServer(t, func(o *server.Options) {
			o.StoreDir, o.Port = dir, port
			if o.Users = []*server.User{{Username: "plane", Password: "plane"}, userOf("known", "b", "b")}; !knows {
				o.Users, o.CustomClientAuthentication = nil, refused
			}
		})
	}
	stop := func(s *server.Server) { s.Shutdown(); s.WaitForShutdown() }
	srv := start(true)
	u, err := url.Parse(srv.ClientURL())
	must(t, err)
	_, text, err := net.SplitHostPort(u.Host)
	must(t, err)
	port, err = strconv.Atoi(text)
	must(t, err)
	o := Options{URL: fmt.Sprintf("nats://%s%s", writerUser, u.Host), Run: "known", WriterTTL: 3 * time.Second}
	s := open(t, o)
	enc := begin(t, s)
	c := openCell(t, o, "b")
	back := make(chan struct{}, 9)
	c.Listen(func([]byte) {}, func() { back <- struct{}{} })
	stop(srv)
	srv = start(false)
	for tries := map[string]int{}; len(tries) < 3 || least(tries) < 2; {
		tries[<-refused]++
	}
	stop(srv)
	start(true)
	if err := s.Append([][]byte{storetest.Event(enc, 1)}); err != nil {
		t.Errorf("the writer's append: %v", err)
	}
	select {
	case <-back:
	case <-time.After(time.Minute):
		t.Errorf("the cell's connection is %v: %v", c.store.control.Status(), c.Say([]byte("word")))
	}
}
