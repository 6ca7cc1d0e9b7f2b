package scenario

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/headway-rl/headway/cmd/lab/world/machine"
)

const (
	brokerPort, routePort = 4222, 6222
	// logStream is the stream in which planes keep the log.
	logStream = "headway_" + runName + "_log"
	// scribed is the file in which the scribe writes the log down.
	scribed = "scribe.ndjson"
	// scribeWait is how long the scribe waits before it asks again, unless a broker has written to the log.
	scribeWait = 100 * time.Millisecond
	// scribeAhead is how many lines the scribe asks for at once, where it is behind: a cluster without a leader of its own
	// takes messages and gives none, and planes remove the lines as soon as it has one.
	scribeAhead = 64
)

// brokers are the hosts of the broker, or of the servers of its cluster.
func (w *World) brokers() []*actor {
	var found []*actor
	for _, a := range w.order {
		if roleOf(a.name) == "broker" {
			found = append(found, a)
		}
	}
	return found
}

// brokerURL is the address of the broker, or those of all servers of its cluster.
func (w *World) brokerURL() string {
	var urls []string
	for _, a := range w.brokers() {
		urls = append(urls, a.brokerURL())
	}
	return strings.Join(urls, ",")
}

func (a *actor) brokerURL() string { return fmt.Sprintf("nats://%s:%d", a.host.Load().IP, brokerPort) }

func (w *World) serveBroker(h *machine.Host) error {
	options := &server.Options{
		ServerName: h.Name, Host: "0.0.0.0", Port: brokerPort, NoLog: true, NoSigs: true,
		JetStream: true, StoreDir: h.Name, SyncAlways: w.plan.Durable, MaxPayload: 8 << 20, MaxPending: 64 << 20,
		JetStreamMaxStore: 1 << 40, JetStreamMaxMemory: 64 << 20,
	}
	if all := w.brokers(); len(all) > 1 {
		options.Host = h.IP
		options.Cluster = server.ClusterOpts{Name: "brokers", Host: h.IP, Port: routePort}
		for _, a := range all {
			options.Routes = append(options.Routes, &url.URL{Scheme: "nats", Host: fmt.Sprintf("%s:%d", a.host.Load().IP, routePort)})
		}
	}
	s, err := server.NewServer(options)
	if err != nil {
		return err
	}
	s.Start()
	s.WaitForShutdown()
	return errors.New("the broker has ended")
}

// serveScribe writes down the log of planes that keep no trace, as the broker has it. Planes remove lines that two
// snapshots cover: the scribe is back sooner than they have written two. It asks all servers of a cluster side by side,
// because one that is apart from the others answers nothing.
func (w *World) serveScribe(*machine.Host) error {
	f, err := os.Create(scribed)
	if err != nil {
		return err
	}
	s := &scribe{file: f, begun: &w.begun}
	failed := make(chan error)
	for _, a := range w.brokers() {
		connection, err := nats.Connect(a.brokerURL(), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1),
			nats.ReconnectWait(scribeWait/4), nats.ReconnectJitter(0, 0), nats.IgnoreDiscoveredServers())
		if err != nil {
			return err
		}
		js, err := jetstream.New(connection)
		if err != nil {
			return err
		}
		go func() { failed <- s.follow(js, w.logged) }()
	}
	err = <-failed
	w.unread.Store(&err)
	return err
}

// scribe is the copy of the log.
type scribe struct {
	mu     sync.Mutex
	file   *os.File
	copied []copied      // the messages, by their numbers from 1
	begun  *atomic.Int64 // how often a broker has begun
	held   int64         // how often one had, when the copy was last held against the log
}

// copied is a message of the log in the copy.
type copied struct {
	name string // among all messages
	from int64  // where it begins
}

// follow copies what one server of the broker gives, and returns when that can be no copy of the log any more.
func (s *scribe) follow(js jetstream.JetStream, logged <-chan struct{}) error {
	log, err := streamOf(js)
	for err != nil { // there is none yet, or no broker
		time.Sleep(scribeWait)
		log, err = streamOf(js)
	}
	for ahead := 1; ; {
		begun := s.begun.Load()
		err := s.hold(log, begun)
		var lines []*jetstream.RawStreamMsg
		if err == nil {
			s.mu.Lock()
			next := uint64(len(s.copied)) + 1
			s.mu.Unlock()
			lines, err = linesOf(log, next, ahead)
		}
		if err != nil {
			ahead = 1
			select {
			case <-logged:
				time.Sleep(time.Millisecond)
			case <-time.After(scribeWait):
			}
			continue
		}
		for _, m := range lines {
			if err := s.take(m, begun); err != nil {
				return err
			}
		}
		ahead = min(2*ahead, scribeAhead)
	}
}

// hold takes messages back that the log has no more, once a broker has begun anew. One that was killed before it synced a
// message shows it when it has begun anew, and loses it with its power.
func (s *scribe) hold(log jetstream.Stream, begun int64) error {
	for {
		s.mu.Lock()
		last, done := len(s.copied), s.held >= begun
		s.mu.Unlock()
		if done {
			return nil
		}
		var m *jetstream.RawStreamMsg
		if last > 0 {
			var err error
			if m, err = lineOf(log, uint64(last)); err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
				return err
			}
		}
		s.mu.Lock()
		switch {
		case len(s.copied) != last || s.held >= begun: // another server's connection was first
		case last == 0, m != nil && m.Sequence > uint64(last), m != nil && nameOf(m) == s.copied[last-1].name: // planes remove lines
			s.held = begun
		default:
			if err := s.file.Truncate(s.copied[last-1].from); err != nil {
				s.mu.Unlock()
				return err
			}
			s.copied = s.copied[:last-1]
		}
		s.mu.Unlock()
	}
}

// nameOf tells a message of the log from all others.
func nameOf(m *jetstream.RawStreamMsg) string { return m.Header.Get("Headway-Append") }

// take writes down a line, unless that is done, or a broker has begun since it was asked for.
func (s *scribe) take(m *jetstream.RawStreamMsg, begun int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := uint64(len(s.copied)) + 1
	switch {
	case m.Sequence < next || s.begun.Load() != begun:
		return nil
	case m.Sequence > next:
		return fmt.Errorf("the planes have removed lines %d to %d of the log before the scribe read them", next, m.Sequence-1)
	}
	from, err := s.file.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	s.copied = append(s.copied, copied{nameOf(m), from})
	_, err = s.file.Write(m.Data)
	return err
}

// linesOf are up to n lines of the log from a number on, asked for at once. It fails where there is not even one.
func linesOf(log jetstream.Stream, from uint64, n int) ([]*jetstream.RawStreamMsg, error) {
	lines, errs := make([]*jetstream.RawStreamMsg, n), make([]error, n)
	var asked sync.WaitGroup
	for i := range n {
		asked.Go(func() { lines[i], errs[i] = lineOf(log, from+uint64(i)) })
	}
	asked.Wait()
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
		return lines[:i], errs[0]
	}
	return lines, nil
}

// wake has the scribe connect anew to a broker that begins: one that lost its power told nobody.
func (w *World) wake(a *actor) {
	if scribe := w.actors["scribe"]; scribe != nil && roleOf(a.name) == "broker" {
		w.begun.Add(1)
		w.machine.Reset(a.host.Load().IP, scribe.host.Load().IP)
	}
}

// streamOf is the stream of the log.
func streamOf(js jetstream.JetStream) (jetstream.Stream, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return js.Stream(ctx, logStream)
}

// lineOf is a line of the log, or the first one behind it where that is gone.
func lineOf(log jetstream.Stream, seq uint64) (*jetstream.RawStreamMsg, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*scribeWait)
	defer cancel()
	return log.GetMsg(ctx, seq, jetstream.WithGetMsgSubject(">"))
}
