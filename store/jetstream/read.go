package jetstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sort"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/headway-rl/headway/loop/port"
)

const (
	// readAhead is how many messages of the log a reader is sent before it asks for more.
	readAhead = 64
	// silenceOfReader is more than the 10 s within which a reader that waits finds that the server says nothing.
	silenceOfReader = 15 * time.Second
)

// logReader reads the log's lines from one on, message by message.
type logReader struct {
	store  *Store
	ctx    context.Context
	cancel context.CancelFunc
	it     jetstream.MessagesContext
	next   uint64 // sequence of the next message
	end    uint64 // the last sequence to read; 0: go on with what comes
	lines  assembler
	rest   []byte
	// ends: the message that was read last ends an append.
	ends bool
	// after names the message before next, where the reader is to find that it is still there; else it is nil. consumer is the
	// server's of the message that was read last. await returns once the log is synced up to a message.
	after    *string
	consumer string
	await    func(seq uint64) error
	// instead, if not nil, reads the lines after so many from elsewhere, where the log is damaged.
	instead func(line int64) (io.ReadCloser, error)
	mirror  io.ReadCloser // what instead returned
}

// assembler puts the messages of the log together again to whole lines, once each.
type assembler struct {
	line  int64 // lines that were passed on, or are to be left out
	epoch uint64
	part  []byte // of a line in pieces
	piece int
}

// add returns the whole lines that a message brings, in order, without those that are
// there already.
func (a *assembler) add(at logPlace, data []byte) ([]byte, error) {
	if at.epoch < a.epoch {
		return nil, nil // of a writer that was deposed
	}
	a.epoch = at.epoch
	if at.piece >= 0 {
		if at.piece == 0 {
			a.part = a.part[:0]
		} else if at.piece != a.piece+1 || a.part == nil {
			return nil, fmt.Errorf("store: line %d of the log lacks a piece before its piece %d", at.line, at.piece)
		}
		a.piece = at.piece
		a.part = append(a.part, data...)
		if !bytes.HasSuffix(data, newline) {
			return nil, nil
		}
		data, a.part = a.part, nil
	} else {
		a.part = nil // a line whose writer died in the middle of it
	}
	first := at.line
	for first <= a.line && len(data) > 0 {
		data = data[bytes.IndexByte(data, '\n')+1:]
		first++
	}
	if len(data) == 0 {
		return nil, nil
	}
	if first != a.line+1 {
		return nil, fmt.Errorf("store: the log goes on with line %d after line %d", first, a.line)
	}
	a.line += int64(bytes.Count(data, newline))
	return data, nil
}

// ReadLog returns the log's lines after the first line lines, as it is now. Lines that the log has given up
// are read from the mirror, where there is one.
func (s *Store) ReadLog(line int64) (io.ReadCloser, error) {
	if s.ctx.Err() != nil {
		return nil, ErrClosed
	}
	s.events.mutex.Lock()
	end, lines := s.events.last, s.events.line
	s.events.mutex.Unlock()
	if s.lease.Load() == nil {
		var err error
		if end, lines, _, err = s.logEnd(s.ctx); err != nil {
			return nil, err
		}
	}
	if line > lines || line < 0 {
		return nil, fmt.Errorf("store: the log has %d lines, want those after %d", lines, line)
	}
	if line == lines {
		return io.NopCloser(bytes.NewReader(nil)), nil
	}
	r, err := s.readFrom(s.ctx, line, end)
	if errors.Is(err, port.ErrLogTrimmed) || errors.Is(err, errDamaged) {
		mirrored, err2 := s.readMirrored(line, lines, end)
		if err2 != nil {
			return nil, fmt.Errorf("%w; %w", err, err2)
		}
		s.options.Logf("%v: the lines after %d are read from the mirror %s", err, line, s.mirror.path)
		return mirrored, nil
	}
	if err != nil {
		return nil, err
	}
	r.instead = func(line int64) (io.ReadCloser, error) { return s.readMirrored(line, lines, end) }
	return r, nil
}

// readFrom opens a reader of the messages that hold the lines after line.
func (s *Store) readFrom(ctx context.Context, line int64, end uint64) (*logReader, error) {
	start, err := s.seekLine(ctx, line+1)
	if err != nil {
		return nil, err
	}
	return s.readMessages(ctx, start, end, assembler{line: line})
}

// readMessages opens a reader of the messages from one on, where lines are put together by what is before it.
func (s *Store) readMessages(ctx context.Context, start, end uint64, lines assembler) (r *logReader, err error) {
	r = &logReader{store: s, next: start, end: end, lines: lines}
	r.ctx, r.cancel = context.WithCancel(ctx)
	stop := context.AfterFunc(s.ctx, r.cancel)
	cancel := r.cancel
	r.cancel = func() { stop(); cancel() }
	r.it, err = s.consume(r.ctx, s.log, start, false, readAhead)
	if err != nil {
		r.cancel()
		return nil, fmt.Errorf("store: reading the log from message %d: %w", start, err)
	}
	return r, nil
}

// seekLine returns the sequence of the message in which a line begins, or of where it will be.
func (s *Store) seekLine(ctx context.Context, line int64) (uint64, error) {
	state, err := s.streamInfo(ctx, s.log)
	if err != nil {
		return 0, fmt.Errorf("store: the log: %w", err)
	}
	first, last := state.FirstSeq, state.LastSeq
	if state.Msgs == 0 {
		return max(first, 1), nil
	}
	var failed error
	placeAt := func(seq uint64) (at logPlace) {
		err := s.again(ctx, func(ctx context.Context) error {
			m, err := s.leaderGet(ctx, s.names.log, seq)
			if err == nil {
				at, err = logPlaceOf(m.header)
			}
			return err
		})
		if errors.Is(err, errNoMessage) {
			err = s.damagedLog(seq, fmt.Sprintf("of %d to %d", first, last))
		}
		failed = errors.Join(failed, err)
		return at
	}
	lineAt := func(seq uint64) int64 { return placeAt(seq).line }
	// The last message that begins no later than the line, and of several that do so
	// within one line, the first.
	n := sort.Search(int(last-first)+1, func(i int) bool { return lineAt(first+uint64(i)) > line })
	if failed != nil {
		return 0, fmt.Errorf("store: looking for line %d of the log: %w", line, failed)
	}
	if n == 0 {
		return 0, fmt.Errorf("store: line %d of the log: %w; it begins with line %d", line, port.ErrLogTrimmed, lineAt(first))
	}
	begins := lineAt(first + uint64(n-1))
	n = sort.Search(n-1, func(i int) bool { return lineAt(first+uint64(i)) >= begins })
	if failed != nil {
		return 0, fmt.Errorf("store: looking for line %d of the log: %w", line, failed)
	}
	if n == 0 && begins > 1 && begins == line {
		// A message may go on with a line that began in one that is gone.
		if placeAt(first).piece > 0 {
			return 0, fmt.Errorf("store: line %d of the log: %w", line, port.ErrLogTrimmed)
		}
	}
	return first + uint64(n), nil
}

// next returns a reader's next message. A connection that is tried often while nobody waits here fills the places that the client
// library has for that, and the word that it is back is lost. The reader then waits for that word alone, and would do so for ever.
// Waiting anew, it looks whether the server says anything.
func next(ctx context.Context, it jetstream.MessagesContext) (jetstream.Msg, error) {
	for {
		try, cancel := context.WithTimeout(ctx, silenceOfReader)
		m, err := it.Next(jetstream.NextContext(try))
		cancel()
		if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return m, err
		}
	}
}

// message returns the next whole lines, which may be none, io.EOF after the last message.
func (r *logReader) message() ([]byte, error) {
	if r.end != 0 && r.next > r.end {
		return nil, io.EOF
	}
	m, err := next(r.ctx, r.it)
	if err != nil {
		if r.ctx.Err() != nil && r.store.ctx.Err() != nil {
			return nil, ErrClosed
		}
		return nil, fmt.Errorf("store: reading the log: %w", err)
	}
	meta, err := m.Metadata()
	if err != nil {
		return nil, fmt.Errorf("store: reading the log: %w", err)
	}
	if meta.Sequence.Stream != r.next {
		return nil, r.store.gap(r.ctx, r.next, r.lines.line)
	}
	if r.after != nil {
		name := m.Headers().Get(headerAppend)
		if err := r.goesOn(meta, name); err != nil {
			return nil, err
		}
		*r.after = name
	}
	r.next++
	r.ends = m.Headers().Get(headerMore) == ""
	at, err := logPlaceOf(m.Headers())
	if err != nil {
		return nil, fmt.Errorf("store: message %d: %w", meta.Sequence.Stream, err)
	}
	return r.lines.add(at, m.Data())
}

// errOtherEnd says that a server has shown an end of the log that it had not synced, and lost it.
var errOtherEnd = errors.New("the log has lost its end, which was read and never synced")

// goesOn looks whether the log goes on behind what was read, where the server has another consumer for the reader: it may have
// begun anew, with an end that is not synced yet.
func (r *logReader) goesOn(at *jetstream.MsgMetadata, name string) error {
	if r.consumer == at.Consumer {
		return nil
	}
	if r.consumer != "" {
		if err := r.await(at.Sequence.Stream + at.NumPending); err != nil {
			return err
		}
	}
	if err := r.standsAt(r.next-1, *r.after); err != nil {
		return err
	}
	r.consumer = at.Consumer
	return r.standsAt(r.next, name)
}

// standsAt looks whether a message of the log has a name still, or a snapshot has it.
func (r *logReader) standsAt(seq uint64, name string) error {
	var m message
	err := r.store.again(r.ctx, func(ctx context.Context) (err error) {
		m, err = r.store.leaderGet(ctx, r.store.names.log, seq)
		return err
	})
	if errors.Is(err, errNoMessage) {
		if err = r.store.gap(r.ctx, seq, r.lines.line); errors.Is(err, port.ErrLogTrimmed) {
			return nil
		}
	}
	if err == nil && m.header.Get(headerAppend) != name {
		err = fmt.Errorf("store: message %d of the log: %w", seq, errOtherEnd)
	}
	return err
}

// gap says why a message of the log is not there: it has been given up since, or is damaged.
func (s *Store) gap(ctx context.Context, seq uint64, line int64) error {
	state, err := s.streamInfo(ctx, s.log)
	if err == nil && state.FirstSeq <= seq {
		return s.damagedLog(seq, fmt.Sprintf("after line %d", line))
	}
	return errors.Join(fmt.Errorf("store: message %d of the log: %w", seq, port.ErrLogTrimmed), err)
}

// damagedLog says that a message of the log is lost, and what to do.
func (s *Store) damagedLog(seq uint64, where string) error {
	return fmt.Errorf("store: message %d of the log (stream %s), %s, is missing or damaged: restore the run from a copy, as docs/standby-and-backup.md says: %w: %w", seq, s.names.log, where, ErrLogDamaged, errDamaged)
}

// Read implements io.Reader.
func (r *logReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		if r.mirror != nil {
			return r.mirror.Read(p)
		}
		var err error
		if r.rest, err = r.message(); errors.Is(err, errDamaged) && r.instead != nil {
			err = r.turnTo(err)
		}
		if err != nil {
			return 0, err
		}
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// turnTo goes on with the mirror, where it has what the log has lost.
func (r *logReader) turnTo(damage error) (err error) {
	if r.mirror, err = r.instead(r.lines.line); err != nil {
		return fmt.Errorf("%w; %w", damage, err)
	}
	r.store.options.Logf("%v: the lines after %d are read from the mirror %s", damage, r.lines.line, r.store.mirror.path)
	return nil
}

// Close ends the reading.
func (r *logReader) Close() error {
	r.it.Stop()
	r.cancel()
	if r.mirror != nil {
		return r.mirror.Close()
	}
	return nil
}
