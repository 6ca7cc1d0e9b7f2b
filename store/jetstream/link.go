package jetstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/loop/trace"
)

// Words of cells go by core NATS, one subject a cell: the log says which of them arrived, so that no stream holds them.

// beginWait is the time between two looks for a run that has not begun.
const beginWait = 100 * time.Millisecond

const (
	// silenceOfWriter is how long a cell waits for an answer of the writer before it asks again.
	silenceOfWriter = time.Second
	// unsyncedMost is how long it asks. By then the server's kernel has written what was not synced. The run may have ended.
	unsyncedMost = time.Minute
)

// Link is a cell's connection to its run. It follows the log and says words to the writer. It makes and changes no stream.
type Link struct {
	store   *Store
	cell    string
	subject string
	answers string // the subject of answers
	// next and lines are where Follow begins, and after names the message before.
	next  uint64
	lines assembler
	after string
	// followed is how far Follow has come.
	followed followed
	newest   shared // see Replaced
	// unheard: nobody heard the last word, and the log has not gone on since.
	unheard atomic.Bool
	turns   cellTurns
	blobs   sentBlobs
	// incarnation is this process's, 0 before it has one.
	incarnation atomic.Int64

	mutex    sync.Mutex
	answered func([]byte)
	back     func()
}

// OpenLink connects to a run's servers, which o names by URL, for the cell of a name. The context bounds that.
func OpenLink(ctx context.Context, o Options, cell string) (*Link, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.URL == "" {
		return nil, errors.New("store: a cell of its own needs the address of the run's NATS servers, and URL is empty")
	}
	s := newStore(o)
	l := &Link{store: s, cell: cell, subject: s.names.cellSubject(cell), answered: func([]byte) {}, back: func() {},
		turns: cellTurns{attempts: map[loop.GroupID]map[port.RolloutID]*standing{}, kept: map[loop.GroupID]map[port.RolloutID]int{}}}
	l.newest.ask = l.reachEnd
	s.entering = func() ([]nats.Option, error) {
		options := []nats.Option{nats.CustomInboxPrefix(s.names.inbox(cell))}
		if o.CellFile == "" {
			return options, nil
		}
		enter, err := enterAs(cell, o.CellFile)
		return append(options, enter...), err
	}
	if err := l.open(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return l, nil
}

func (l *Link) open(ctx context.Context) (err error) {
	s := l.store
	if s.control, err = s.connect(ctx, "cell"); err != nil {
		return err
	}
	s.control.SetDisconnectErrHandler(func(_ *nats.Conn, err error) {
		if s.ctx.Err() == nil {
			s.options.Logf("the connection to NATS is lost (%v): what is said waits, and nothing is lost", err)
		}
	})
	s.control.SetReconnectHandler(func(*nats.Conn) {
		s.options.Logf("the connection to NATS is there again")
		l.told(func() { l.back() })
	})
	if s.js, err = jetstream.New(s.control); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	l.answers = s.control.NewInbox()
	if _, err = s.control.Subscribe(l.answers, func(m *nats.Msg) {
		if m.Header.Get("Status") == "" {
			l.told(func() { l.answered(m.Data) })
		} else if !l.unheard.Swap(true) { // it is the server's
			s.options.Logf("no control plane hears the cells of run %s: what plays goes on, and what is said waits for one", s.options.Run)
		}
	}); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

// told calls what Listen was given.
func (l *Link) told(call func()) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	call()
}

// Listen has answers to words handed over, and every connection that is there again after it was lost.
func (l *Link) Listen(answered func(answer []byte), back func()) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.answered, l.back = answered, back
}

// Say sends a word. An error says that it is not on its way; none says nothing.
func (l *Link) Say(word []byte) error {
	return l.store.control.PublishRequest(l.subject, l.answers, word)
}

// Begin waits until the run has begun, and returns the log's header and its end as of now, where Follow begins.
func (l *Link) Begin(ctx context.Context) (trace.Header, trace.Position, error) {
	for {
		at, err := l.begin(ctx)
		if err == nil {
			h, _ := l.store.Header()
			return h, at, nil
		}
		if !transient(err) && !errors.Is(err, errNoMessage) && !errors.Is(err, jetstream.ErrStreamNotFound) && !errors.Is(err, errTorn) {
			return trace.Header{}, at, err
		}
		if !l.store.pause(ctx, beginWait) {
			return trace.Header{}, at, errors.Join(context.Cause(ctx), err)
		}
	}
}

func (l *Link) begin(ctx context.Context) (at trace.Position, err error) {
	s := l.store
	try, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	if s.log, err = s.js.Stream(try, s.names.log); err != nil {
		return at, err
	}
	info, err := s.log.Info(try)
	if err != nil {
		return at, err
	}
	for seq := info.State.LastSeq; seq > 0; seq-- { // a writer's marker and a line in pieces do not tell it
		m, err := s.leaderGet(try, s.names.log, seq)
		if err != nil {
			return at, err
		}
		place, err := logPlaceOf(m.header)
		if err != nil {
			return at, err
		}
		if place.piece >= 0 || len(m.data) == 0 {
			continue
		}
		line := place.line - 1 + int64(bytes.Count(m.data, newline))
		if at, err = trace.After(m.data[bytes.LastIndexByte(m.data[:len(m.data)-1], '\n')+1:], line); err != nil {
			return at, fmt.Errorf("store: message %d of the log: %w", seq, err)
		}
		l.followed.set(seq, nil)
		l.next, l.lines, l.after = seq+1, assembler{line: line, epoch: place.epoch}, m.header.Get(headerAppend)
		s.events.mutex.Lock()
		defer s.events.mutex.Unlock()
		return at, s.events.loadHeader(try, s)
	}
	return at, errNoMessage
}

// Incarnate gives this process the cell's next incarnation, once Begin has returned. It is above all that the cell was given
// before: it is the place of a write among those to the run's bucket. Then it looks which turns the processes before have kept.
func (l *Link) Incarnate(ctx context.Context) (incarnation int64, err error) {
	s := l.store
	err = s.again(ctx, func(ctx context.Context) error {
		bucket, err := s.js.KeyValue(ctx, s.names.bucket)
		if err != nil {
			return err
		}
		revision, err := bucket.PutString(ctx, cellKeys+l.cell, time.Now().UTC().Format(time.RFC3339)) // for people
		incarnation = int64(revision)
		l.incarnation.Store(incarnation)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("store: an incarnation of cell %s: %w", l.cell, err)
	}
	return incarnation, l.loadTurns(ctx)
}

// Follow hands over the lines behind Begin's position as they are appended, those of a message at a time. It says whether
// an append ends with them. It goes on through lost connections, until the context ends or take fails, or the log has lost what was
// handed over. A server that is killed before it syncs a line shows it as it begins anew, and may lose it with its power.
func (l *Link) Follow(ctx context.Context, take func(lines []byte, ends bool) error) error {
	l.turns.stale.Store(true)
	r, err := l.store.readMessages(ctx, l.next, 0, l.lines)
	if err != nil {
		return err
	}
	defer r.Close()
	r.after, r.await = &l.after, func(seq uint64) error { return l.awaitSynced(ctx, seq) }
	for {
		lines, err := r.message()
		if err == nil && len(lines) > 0 { // else it is a writer's marker, or a piece
			if l.unheard.Load() && l.unheard.Swap(false) {
				l.store.options.Logf("the log of run %s goes on", l.store.options.Run)
			}
			err = take(lines, r.ends)
		}
		l.followed.set(r.next-1, err)
		if err != nil {
			return err
		}
	}
}

// headerSynced is on a question of a cell, and on its answer: up to which message is the log synced?
const headerSynced = "Headway-Synced"

// awaitSynced returns once the writer says that the log is synced up to a message, or unsyncedMost later. Until then it may be lost.
func (l *Link) awaitSynced(ctx context.Context, seq uint64) error {
	for began := time.Now(); time.Since(began) < unsyncedMost; {
		try, cancel := context.WithTimeout(ctx, silenceOfWriter)
		m := nats.NewMsg(l.subject)
		m.Header.Set(headerSynced, "")
		answer, err := l.store.control.RequestMsgWithContext(try, m)
		cancel()
		if err == nil {
			synced, err := strconv.ParseUint(answer.Header.Get(headerSynced), 10, 64)
			if err != nil || synced >= seq { // one of an earlier build does not know
				return nil
			}
		}
		if !l.store.pause(ctx, retryWait) {
			return errors.Join(context.Cause(ctx), ErrClosed)
		}
	}
	return nil
}

// End has all calls that wait for NATS give up. The connection stays.
func (l *Link) End() { l.store.cancel() }

// Close ends the connection.
func (l *Link) Close() error { return l.store.Close() }

// HearCells has what cells say handed over, one word at a time, with the name of the cell whose subject it came by. The
// answer goes back to the cell; nil is none. It ends with stop, or the store.
func (s *Store) HearCells(take func(cell string, word []byte) (answer []byte)) (stop func(), err error) {
	sub, err := s.control.Subscribe(s.names.cells+".>", func(m *nats.Msg) {
		s.hearsCells.Store(true)
		if _, asks := m.Header[headerSynced]; asks {
			answer := nats.NewMsg(m.Reply)
			answer.Header.Set(headerSynced, strconv.FormatUint(s.events.synced.Load(), 10))
			_ = m.RespondMsg(answer) // else it asks again
			return
		}
		answer := take(strings.TrimPrefix(m.Subject, s.names.cells+"."), m.Data)
		if answer == nil || m.Reply == "" {
			return
		}
		if err := m.Respond(answer); err != nil { // it says its word again
			s.options.Logf("store: answering a cell: %v", err)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("store: hearing cells: %w", err)
	}
	if err := s.control.Flush(); err != nil {
		return nil, fmt.Errorf("store: hearing cells: %w", err)
	}
	return func() { _ = sub.Unsubscribe() }, nil
}
