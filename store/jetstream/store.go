package jetstream

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/headway-rl/headway/loop/port"
)

// The errors of calls that cannot be served.
var (
	// ErrClosed is what a closed store answers.
	ErrClosed = errors.New("store: closed")
	// ErrNotWriter is what a store answers that has not acquired the run.
	ErrNotWriter = errors.New("store: this process does not write the run: Acquire comes first")
	// ErrFenced says that this process writes the run no longer: another one took over, or
	// the lease could not be renewed. It is final for this store: end this process's run.
	ErrFenced = errors.New("store: this process writes the run no longer: its lease is lost, or taken over by another process")
)

// apiTimeout bounds one request to the server; what must succeed is asked again.
const apiTimeout = 5 * time.Second

// dialTimeout is how long a cluster may take until one of its servers answers.
const dialTimeout = 15 * time.Second

// Store is a run's event log, payloads and snapshots in JetStream. Its methods are safe
// for concurrent use. Before Acquire it follows and reads; after it, it is the run's writer.
type Store struct {
	options  Options
	names    names
	embedded *embedded
	// Three connections, so that a large payload is in the way of neither the log nor the lease.
	control, put, get *nats.Conn
	js, putJS         jetstream.JetStream
	log, data         jetstream.Stream
	turns             jetstream.Stream // of cells in other processes, nil without Options.CellTurns

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wait   sync.WaitGroup
	once   sync.Once

	lease    atomic.Pointer[lease]
	events   eventLog
	payloads payloads
	mirror   *mirror
	states   states
	disk     disk
	// hearsCells: a cell in another process has spoken. ended are groups whose turns there are to be removed.
	hearsCells atomic.Bool
	ended      endedGroups
	noTurns    sync.Once                     // said that turns find no room
	entering   func() ([]nats.Option, error) // more by which this process connects
}

var (
	_ port.Store   = (*Store)(nil)
	_ port.Blobs   = (*Store)(nil)
	_ port.Bounded = (*Store)(nil)
)

// names are what the run's streams and subjects are called.
type names struct {
	log, head, data, turns  string // streams: the log, its header, payloads, turns of cells
	logSubject, dataSubject string
	turnSubject             string // what the subjects of the stream turns begin with
	header                  string // what the subjects of the stream head begin with
	// kept are the streams of snapshots, snapshots what their subjects begin with.
	kept, snapshots [slotsOfSnapshots]string
	bucket, objects string // buckets of the lease and of objects
	cells           string // what the subjects begin with by which cells speak
}

// namesOf derives the names of a run's streams from its own name.
func namesOf(run string) names {
	var b strings.Builder
	for _, c := range []byte(run) {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "_%02X", c)
		}
	}
	r := b.String()
	n := names{
		log: "headway_" + r + "_log", head: "headway_" + r + "_header", data: "headway_" + r + "_payload", turns: "headway_" + r + "_turns",
		bucket: "headway_" + r + "_writer", objects: "headway_" + r + "_objects",
		logSubject: "headway." + r + ".log", dataSubject: "headway." + r + ".payload", turnSubject: "headway." + r + ".turns",
		header: "headway." + r + ".header", cells: "headway." + r + ".cell",
	}
	for i := range n.kept {
		number := ""
		if i > 0 {
			number = strconv.Itoa(i + 1)
		}
		n.kept[i], n.snapshots[i] = "headway_"+r+"_snapshots"+number, "headway."+r+".snapshot"+number
	}
	return n
}

// Open connects, starts the embedded server first where there is no URL, and makes the
// run's streams if they are missing. The context bounds that.
func Open(ctx context.Context, o Options) (*Store, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s := newStore(o)
	err := s.open(ctx)
	if err == nil {
		err = s.events.load(ctx, s)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func newStore(o Options) *Store {
	s := &Store{options: o.WithDefaults(), names: namesOf(o.Run), ended: endedGroups{wake: make(chan struct{}, 1)}, entering: func() ([]nats.Option, error) { return nil, nil }}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// open connects and makes the streams. It reads nothing of the log.

func (s *Store) open(ctx context.Context) error {
	var err error
	if s.options.URL == "" {
		if s.embedded, err = startEmbedded(s.options); err != nil {
			return err
		}
		s.disk = disk{dir: s.options.Dir, least: s.options.FreeBytesMin, free: freeBytes, down: make(chan struct{})}
		s.wait.Add(1)
		go s.watch()
	}
	for _, c := range []struct {
		conn **nats.Conn
		what string
	}{{&s.control, "control"}, {&s.put, "put"}, {&s.get, "get"}} {
		if *c.conn, err = s.connect(ctx, c.what); err != nil {
			return err
		}
	}
	if s.js, err = jetstream.New(s.control); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if s.putJS, err = jetstream.New(s.put, jetstream.WithPublishAsyncMaxPending(publishPendingMax)); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	for _, c := range s.streams() {
		stream, err := s.makeStream(ctx, c.config)
		if err != nil {
			return err
		}
		if c.stream != nil {
			*c.stream = stream
		}
	}
	if err := s.measureSnapshots(ctx); err != nil {
		return err
	}
	s.payloads.init(s)
	return nil
}

// connect dials until somebody answers, for dialTimeout: servers that are started together
// with this process may take a moment. A control plane whose server takes this process in may come much later.
func (s *Store) connect(ctx context.Context, what string) (*nats.Conn, error) {
	for began := time.Now(); ; {
		more, err := s.entering()
		comes := errors.Is(err, fs.ErrNotExist) // the server writes the file
		var conn *nats.Conn
		if err == nil {
			conn, err = dial(s.options, s.embedded, what, more)
			comes = errors.Is(err, nats.ErrNoServers) || unreached(err)
		}
		if late := s.options.CellFile == "" && time.Since(began) > dialTimeout; err == nil || !comes || late {
			return conn, err
		}
		if !s.pause(ctx, 100*time.Millisecond) {
			return nil, errors.Join(context.Cause(ctx), err)
		}
	}
}

// unreached reports whether no server was spoken to: its machine does not answer yet, or nobody knows its name yet.
func unreached(err error) bool {
	network, is := errors.AsType[*net.OpError](err)
	return is && network.Op == "dial"
}

// streamOf is a stream's handle, nil if it needs none, and what it is to be.
type streamOf struct {
	stream *jetstream.Stream
	config jetstream.StreamConfig
}

func (s *Store) streams() []streamOf {
	log := s.config(s.names.log, s.options.LogBytesMax, s.names.logSubject)
	// The header is not with the snapshots: the server gives a file back as soon as all that
	// was before the first message needed is gone, and what is gone behind it only after minutes.
	head := s.config(s.names.head, -1, s.names.header+".>")
	data := s.config(s.names.data, s.options.PayloadBytesMax, s.names.dataSubject)
	data.AllowDirect = true
	all := []streamOf{{&s.log, log}, {nil, head}, {&s.data, data}}
	if s.options.CellTurns {
		// Of its own, so that turns never take the room that the payload of their rollout needs.
		all = append(all, streamOf{&s.turns, s.config(s.names.turns, s.options.PayloadBytesMax/turnsShare, s.names.turnSubject+".>")})
	}
	for i, name := range s.names.kept {
		x := &s.states.slots[i]
		x.name, x.subject = name, s.names.snapshots[i]
		all = append(all, streamOf{&x.stream, s.slotConfig(x)})
	}
	return all
}

func (s *Store) config(name string, bytes int64, subjects ...string) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: name, Subjects: subjects, Storage: jetstream.FileStorage, Replicas: s.options.Replicas,
		// New: a full stream refuses what comes. Old would remove what somebody still needs.
		Discard: jetstream.DiscardNew, MaxBytes: bytes, Retention: jetstream.LimitsPolicy,
	}
}

func (s *Store) slotConfig(x *slot) jetstream.StreamConfig {
	config := s.config(x.name, -1, x.subject+".>")
	config.MaxMsgsPerSubject = 1 // which also makes the server's files 4 MB and not 8
	return config
}

// makeStream makes a stream, or changes one that is there; a cluster that has just
// started is asked until it has a leader.
func (s *Store) makeStream(ctx context.Context, config jetstream.StreamConfig) (jetstream.Stream, error) {
	var stream jetstream.Stream
	err := s.again(ctx, func(ctx context.Context) (err error) {
		stream, err = s.js.CreateOrUpdateStream(ctx, config)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("store: stream %s: %w", config.Name, err)
	}
	return stream, nil
}

// pause waits, and reports whether the context and the store live on.
func (s *Store) pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-s.ctx.Done():
	}
	return false
}

// again asks until there is an answer that asking again would not change, or the context
// ends. A request to a server that dies is never answered: each has a time of its own.
func (s *Store) again(ctx context.Context, ask func(ctx context.Context) error) error {
	for {
		try, cancel := context.WithTimeout(ctx, apiTimeout)
		err := ask(try)
		cancel()
		if err == nil || !transient(err) {
			return err
		}
		if l := s.lease.Load(); l != nil && l.fenced.Load() {
			return ErrFenced
		}
		if !s.pause(ctx, retryWait) {
			return err
		}
	}
}

// errorInProcess is the server's word that the same message is on its way: it was sent before, and is not stored yet.
const errorInProcess = 10158

// errorNotDeleted is the server's word that it has not deleted a message, for want of room on its disk or else.
const errorNotDeleted = 10057

// transient reports whether asking again may help: nobody answered, the cluster has no leader, or the disk is full.
func transient(err error) bool {
	if api, is := errors.AsType[*jetstream.APIError](err); is {
		return api.Code == 503 || api.Code == 408 || api.ErrorCode == errorInProcess || api.ErrorCode == errorNotDeleted
	}
	if _, broken := errors.AsType[*net.OpError](err); broken { // the connection to a node that died
		return true
	}
	for _, e := range []error{context.DeadlineExceeded, nats.ErrTimeout, nats.ErrNoResponders, nats.ErrDisconnected,
		nats.ErrConnectionReconnecting, nats.ErrReconnectBufExceeded, nats.ErrStaleConnection, nats.ErrNoServers,
		jetstream.ErrNoStreamResponse, jetstream.ErrAsyncPublishTimeout, jetstream.ErrTooManyStalledMsgs} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// noSpace reports whether the server refused a message because there is no room for it.
func noSpace(err error) bool {
	api, is := errors.AsType[*jetstream.APIError](err)
	return is && (strings.Contains(api.Description, "maximum bytes exceeded") || strings.Contains(api.Description, "no space left") ||
		strings.Contains(api.Description, "insufficient"))
}

// chunkBytes is how much of a payload or a snapshot goes into one message.
func (s *Store) chunkBytes() int {
	return int(max(s.put.MaxPayload()-headerSlack, headerSlack))
}

// headerSlack is what headers of a message may take.
const headerSlack = 1024

// writer returns the lease of this process, or why it does not write.
func (s *Store) writer() (*lease, error) {
	if s.ctx.Err() != nil {
		return nil, ErrClosed
	}
	l := s.lease.Load()
	if l == nil {
		return nil, ErrNotWriter
	}
	if l.fenced.Load() {
		return nil, ErrFenced
	}
	return l, nil
}

// Usage returns what log and payloads take, in bytes as the server counts them. It includes bytes
// that have been forgotten and not yet removed. Snapshots are not: see SnapshotBytes.
func (s *Store) Usage() (logBytes, payloadBytes int64) {
	return s.events.bytes.Load(), s.payloads.used()
}

// Close completes the mirror, gives the lease back and disconnects. A second Close does nothing.
func (s *Store) Close() error {
	var err error
	s.once.Do(func() { err = s.close() })
	return err
}

func (s *Store) close() error {
	err := s.mirror.close()
	s.cancel()
	s.wait.Wait()
	s.stopWriting()
	for _, c := range []*nats.Conn{s.control, s.put, s.get} {
		if c != nil {
			c.Close()
		}
	}
	s.embedded.stop()
	return err
}

// stopWriting gives the lease back.
func (s *Store) stopWriting() {
	if l := s.lease.Load(); l != nil {
		l.release()
	}
}
