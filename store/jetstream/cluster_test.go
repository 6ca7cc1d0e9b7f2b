package jetstream

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/headway-rl/headway/loop"
)

// cluster is three processes of the real server, joined by routes.
type cluster struct {
	binary  string
	configs [3]string
	ports   [3]int
	nodes   [3]*exec.Cmd
}

// startCluster builds the server from its module and starts three nodes.
func startCluster(t *testing.T) *cluster {
	t.Helper()
	dir := t.TempDir()
	c := &cluster{binary: filepath.Join(dir, "nats-server")}
	if text, err := exec.Command("go", "build", "-o", c.binary, "github.com/nats-io/nats-server/v2").CombinedOutput(); err != nil {
		t.Fatalf("building nats-server: %v\n%s", err, text)
	}
	var routes [3]int
	for i := range c.ports {
		c.ports[i], routes[i] = freePort(t), freePort(t)
	}
	for i := range c.configs {
		c.configs[i] = filepath.Join(dir, fmt.Sprintf("node%d.conf", i))
		text := fmt.Sprintf("server_name: n%d\nlisten: 127.0.0.1:%d\njetstream { store_dir: %q }\ncluster { name: c, listen: 127.0.0.1:%d, routes: [nats://127.0.0.1:%d, nats://127.0.0.1:%d, nats://127.0.0.1:%d] }\n",
			i, c.ports[i], filepath.Join(dir, fmt.Sprintf("store%d", i)), routes[i], routes[0], routes[1], routes[2])
		if err := os.WriteFile(c.configs[i], []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		c.start(t, i)
	}
	t.Cleanup(func() {
		for i := range c.nodes {
			c.kill(i)
		}
	})
	return c
}

// freePort returns a port that nobody listens on.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func (c *cluster) start(t *testing.T, i int) {
	t.Helper()
	c.nodes[i] = exec.Command(c.binary, "-c", c.configs[i])
	if err := c.nodes[i].Start(); err != nil {
		t.Fatal(err)
	}
}

// kill is kill -9.
func (c *cluster) kill(i int) {
	if c.nodes[i] != nil {
		_ = c.nodes[i].Process.Kill()
		_ = c.nodes[i].Wait()
		c.nodes[i] = nil
	}
}

func (c *cluster) url() string {
	var urls []string
	for _, p := range c.ports {
		urls = append(urls, fmt.Sprintf("nats://127.0.0.1:%d", p))
	}
	return strings.Join(urls, ",")
}

// whole waits until every stream of the run has all its replicas again: a second node is
// killed only after that.
func (c *cluster) whole(t *testing.T, s *Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for _, name := range append(s.names.kept[:], s.names.log, s.names.head, s.names.data, "KV_"+s.names.bucket) {
		for {
			try, cancel := context.WithTimeout(ctx, 2*time.Second)
			stream, err := s.js.Stream(try, name)
			cancel()
			if err == nil && current(stream.CachedInfo().Cluster) == 2 {
				break
			}
			if !s.pause(ctx, 50*time.Millisecond) {
				t.Fatalf("%s has not all its replicas again: %v", name, err)
			}
		}
	}
}

// current counts the followers that are up to date.
func current(info *jetstream.ClusterInfo) int {
	n := 0
	if info != nil && info.Leader != "" {
		for _, r := range info.Replicas {
			if r.Current && !r.Offline {
				n++
			}
		}
	}
	return n
}

// Nodes of a cluster are killed one at a time while a writer in another process appends,
// puts and forgets. It goes on by itself, and what it was acknowledged is there; then the
// writer is killed too, and another goes on.
func TestKilledClusterNodes(t *testing.T) {
	if testing.Short() || os.Getenv("HEADWAY_LONG") == "" {
		t.Skip("HEADWAY_LONG is not set: three nodes and their elections take a minute")
	}
	c := startCluster(t)
	where := c.url() + " " + t.TempDir()
	o := childOptions(where)
	o.Logf = t.Logf
	watch, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close()
	k := &told{puts: map[loop.GroupID]int{}}
	random := rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
	const writers, killsEach, between = 2, 5, 400
	for range writers {
		kills := 0
		dead := -1
		k.live(t, where, between*2*(killsEach+1), func(said int) {
			if said%between != 0 || kills == killsEach {
				return
			}
			if dead >= 0 { // the writer has gone on without it
				c.start(t, dead)
				c.whole(t, watch)
				dead = -1
				kills++
				return
			}
			dead = random.IntN(3)
			c.kill(dead)
		})
		if dead >= 0 {
			c.start(t, dead)
		}
		if kills != killsEach {
			t.Fatalf("%d nodes were killed, want %d", kills, killsEach)
		}
		c.whole(t, watch)
		t.Logf("%d lines, snapshot at %d, %d groups not forgotten", k.lines, k.snapshot, len(k.puts))
		k.check(t, where)
	}
}
