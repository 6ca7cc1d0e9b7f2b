package jetstream

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/store/storetest"
)

// open opens a store and makes it the writer.
func open(t testing.TB, o Options) *Store {
	t.Helper()
	if o.Run == "" {
		o.Run = "test"
	}
	o.Logf = t.Logf
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if _, _, err := s.Acquire(t.Context(), "a test"); err != nil {
		t.Fatal(err)
	}
	return s
}

// damage changes the first byte of a snapshot's first chunk.
func damage(t *testing.T, store port.Store, line int64) {
	t.Helper()
	s := store.(*Store)
	there, err := s.snapshots(t.Context())
	must(t, err)
	i := slices.IndexFunc(there, func(k snapshot) bool { return k.line == line })
	subject := there[i].subject() + ".0"
	m, err := s.leaderLast(t.Context(), there[i].slot.name, subject)
	if err != nil {
		t.Fatal(err)
	}
	m.data[0] ^= 1
	if _, err := s.js.PublishMsg(t.Context(), &nats.Msg{Subject: subject, Header: m.header, Data: m.data}); err != nil {
		t.Fatal(err)
	}
}

// damageBlob has the message of a chunk replaced by one that differs in a bit.
func damageBlob(t *testing.T, store port.Store, id port.RolloutID, number int32, at int64) {
	t.Helper()
	s := store.(*Store)
	p := &s.payloads
	p.mutex.Lock()
	defer p.mutex.Unlock()
	b := p.find(id, number)
	seq := &b.seqs[at/b.limit]
	m, err := s.leaderGet(t.Context(), s.names.data, *seq)
	must(t, err)
	m.data[at%b.limit] ^= 1
	ack, err := s.js.PublishMsg(t.Context(), &nats.Msg{Subject: s.names.dataSubject, Header: nats.Header{headerBlob: m.header[headerBlob]}, Data: m.data})
	must(t, err)
	p.room.forget(*seq)
	*seq = ack.Sequence
	p.room.note(*seq, len(m.data), 1)
}

// conforms runs the suites of stores and of blobs.
func conforms(t *testing.T, open func(t *testing.T) func(t *testing.T) port.Store) {
	storetest.Run(t, func(t *testing.T) storetest.Place { return storetest.Place{Damage: damage, Open: open(t)} })
	storetest.RunBlobs(t, func(t *testing.T) storetest.BlobPlace {
		return storetest.BlobPlace{Place: storetest.Place{Open: open(t)}, DamageBlob: damageBlob}
	})
}

func TestConformsEmbedded(t *testing.T) {
	t.Parallel()
	conforms(t, func(t *testing.T) func(t *testing.T) port.Store {
		dir := t.TempDir()
		return func(t *testing.T) port.Store {
			return open(t, Options{Dir: filepath.Join(dir, "nats"), TracePath: filepath.Join(dir, "trace.ndjson"), PayloadBytesMax: storetest.PayloadBytesMax})
		}
	})
}

// startServer starts a server of its own with a port, as a cluster of one.
func startServer(t testing.TB, change func(*server.Options)) (url string) {
	t.Helper()
	srv := runServer(t, change)
	return srv.ClientURL()
}

func runServer(t testing.TB, change func(*server.Options)) *server.Server {
	t.Helper()
	o := &server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true, JetStreamMaxStore: 1 << 50} // whatever the disk has: runs reserve their bounds
	if change != nil {
		change(o)
	}
	srv, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	if !srv.ReadyForConnections(2 * time.Minute) {
		t.Fatal("the server does not start")
	}
	return srv
}

var runs atomic.Int64

// skipShort passes over what takes long under the race detector: make test has it without, and the suite of every store
// meets the same goroutines with the embedded server.
func skipShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("long under the race detector")
	}
}

// The same code against a server of its own, whose messages hold 1 MB, and one whose hold 64 kB.
func TestConformsExternal(t *testing.T) {
	skipShort(t)
	t.Parallel()
	for _, largest := range []int32{1 << 20, 64 << 10} {
		t.Run(fmt.Sprint(largest), func(t *testing.T) {
			url := startServer(t, func(o *server.Options) { o.MaxPayload = largest })
			conforms(t, func(t *testing.T) func(t *testing.T) port.Store {
				run := fmt.Sprintf("a run/%d", runs.Add(1))
				return func(t *testing.T) port.Store {
					return open(t, Options{URL: url, Run: run, LogBytesMax: 64 << 20, PayloadBytesMax: storetest.PayloadBytesMax})
				}
			})
		})
	}
}

// Two processes cannot have one directory.
func TestDirectoryIsLocked(t *testing.T) {
	dir := t.TempDir()
	open(t, Options{Dir: dir})
	if s, err := Open(context.Background(), Options{Dir: dir, Run: "test"}); err == nil {
		_ = s.Close()
		t.Fatal("a directory was opened twice")
	}
}
