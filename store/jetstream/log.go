package jetstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/loop/trace"
)

// Headers of the log's messages.
const (
	// headerLine is the number, from 1, of the line that the message's first byte belongs to.
	headerLine = "Headway-Line"
	// headerEpoch is the writer's epoch.
	headerEpoch = "Headway-Epoch"
	// headerAppend names the message among all that its writer sends, so that a writer that
	// never got an answer finds its own.
	headerAppend = "Headway-Append"
	// headerPiece is on the parts of a line that is too long for one message: their place, from 0.
	headerPiece = "Headway-Piece"
	// headerMore is on all messages of an append but the last.
	headerMore = "Headway-More"
)

// logChunk is the most that goes into one message of the log, so that a reader, which is sent
// many at a time, holds little.
const logChunk = 256 << 10

// logOverhead is the most that the server stores around a message of the log, so that eventLog.bytes is never too low.
const logOverhead = 400

// eventLog is where the log ends, and how it goes on.
type eventLog struct {
	mutex  sync.Mutex
	err    error  // final
	epoch  uint64 // of this process as the writer
	last   uint64 // sequence of the stream's last message
	line   int64  // lines appended
	sent   uint64 // messages begun by this writer
	header trace.Header
	began  bool // header is there
	// bytes are what the stream takes, sinceSnapshot what was appended since the last snapshot.
	bytes, sinceSnapshot atomic.Int64
	// synced is the last message that the server has answered, so that it and all before are synced.
	synced atomic.Uint64
	// since is when the append under way began, nil while there is none.
	since atomic.Pointer[time.Time]
}

// load reads the header and where the log ends.
func (l *eventLog) load(ctx context.Context, s *Store) error {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	last, line, _, err := s.logEnd(ctx)
	if err != nil {
		return fmt.Errorf("store: the end of the log: %w", err)
	}
	l.last, l.line = last, line
	if line > 0 {
		return l.loadHeader(ctx, s)
	}
	return nil
}

func (l *eventLog) loadHeader(ctx context.Context, s *Store) error {
	text, err := s.readChunks(ctx, s.names.head, s.names.header)
	if err != nil {
		return fmt.Errorf("store: the log's header: %w", err)
	}
	r, err := trace.NewReader(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("store: the log's header: %w", err)
	}
	l.header, l.began = r.Header, true
	return nil
}

// logEnd returns the last sequence of the log's stream, how many lines there are, and the
// highest epoch of a writer.
func (s *Store) logEnd(ctx context.Context) (last uint64, lines int64, epoch uint64, err error) {
	for {
		last, lines, epoch, err = s.tryLogEnd(ctx)
		if err == nil || !transient(err) || !s.pause(ctx, 100*time.Millisecond) {
			return last, lines, epoch, err
		}
	}
}

func (s *Store) tryLogEnd(ctx context.Context) (last uint64, lines int64, epoch uint64, err error) {
	try, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	info, err := s.log.Info(try)
	if err != nil || info.State.LastSeq == 0 {
		return 0, 0, 0, err
	}
	s.events.bytes.Store(int64(info.State.Bytes))
	m, err := s.leaderGet(try, s.names.log, info.State.LastSeq)
	if errors.Is(err, errNoMessage) {
		return 0, 0, 0, s.damagedLog(info.State.LastSeq, "its last")
	}
	if err != nil {
		return 0, 0, 0, err
	}
	at, err := logPlaceOf(m.header)
	if err != nil {
		return 0, 0, 0, err
	}
	return info.State.LastSeq, at.line - 1 + int64(bytes.Count(m.data, newline)), at.epoch, nil
}

var newline = []byte{'\n'}

// logPlace is what the headers of a message of the log say.
type logPlace struct {
	line  int64
	epoch uint64
	piece int // -1: whole lines
}

func logPlaceOf(h nats.Header) (logPlace, error) {
	line, err := strconv.ParseInt(h.Get(headerLine), 10, 64)
	epoch, err2 := strconv.ParseUint(h.Get(headerEpoch), 10, 64)
	p := logPlace{line: line, epoch: epoch, piece: -1}
	if text := h.Get(headerPiece); text != "" {
		var err3 error
		p.piece, err3 = strconv.Atoi(text)
		err = errors.Join(err, err3)
		if p.piece < 0 {
			err = errors.Join(err, fmt.Errorf("piece %d", p.piece))
		}
	}
	if line < 1 {
		err = errors.Join(err, fmt.Errorf("line %d", line))
	}
	if err = errors.Join(err, err2); err != nil {
		return p, fmt.Errorf("a message of the log without its line and epoch, written by something else: %w", err)
	}
	return p, nil
}

// Append adds lines to the event log. When it returns without an error they survive the
// end of this process, and on a cluster that of any minority of its nodes. It goes on
// asking while the cluster chooses another leader. An error that wraps port.ErrNoSpace
// has appended nothing and may be tried again; after any other the log takes no more.
func (s *Store) Append(lines [][]byte) error {
	w, err := s.writer()
	if err != nil {
		return err
	}
	l := &s.events
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.err != nil {
		return l.err
	}
	if !l.began && len(lines) > 0 {
		if err := l.begin(s, lines[0]); err != nil {
			return err
		}
	}
	messages := l.messages(s, w.epoch, lines)
	total := 0
	for _, m := range messages {
		total += len(m.Data)
	}
	if err := s.disk.room(total); err != nil {
		return err
	}
	if n := int64(total + len(messages)*logOverhead); len(messages) > 1 && l.bytes.Load()+n > s.options.LogBytesMax {
		return l.full(s, nil) // rather than after some of them
	}
	began := time.Now()
	l.since.Store(&began)
	defer l.since.Store(nil)
	if stored, err := l.put(s, w, messages); err != nil {
		if stored > 0 && errors.Is(err, port.ErrNoSpace) { // to append the lines again would not do
			err = fmt.Errorf("store: the event log has taken a part of an append, and no more: start the control plane again: %v", err)
		}
		if !errors.Is(err, port.ErrNoSpace) {
			l.err = err
		}
		return err
	}
	for _, m := range messages {
		first := l.line + 1
		l.line += int64(bytes.Count(m.Data, newline))
		s.mirror.offer(first, m.Data)
	}
	return nil
}

// begin keeps the header apart from the log, which may give up its first lines.
func (l *eventLog) begin(s *Store, line []byte) error {
	r, err := trace.NewReader(bytes.NewReader(line))
	if err != nil {
		return fmt.Errorf("store: the first line of a log must be its header: %w", err)
	}
	if err := s.writeChunks(s.ctx, s.names.header, line); err != nil {
		return fmt.Errorf("store: the log's header: %w", err)
	}
	l.header, l.began = r.Header, true
	return nil
}

// messages puts whole lines together up to a message's size; a longer line is cut in pieces.
func (l *eventLog) messages(s *Store, epoch uint64, lines [][]byte) []*nats.Msg {
	limit := min(logChunk, s.chunkBytes())
	var out []*nats.Msg
	line := l.line + 1
	var body []byte
	first := line
	flush := func() {
		if len(body) > 0 {
			out = append(out, s.logMessage(epoch, first, -1, body))
		}
		body = nil
	}
	for _, given := range lines {
		for len(given) > 0 { // one element may hold many lines
			text := given
			if end := bytes.IndexByte(given, '\n'); end >= 0 {
				text = given[:end+1]
			}
			given = given[len(text):]
			if len(body) > 0 && len(body)+len(text) > limit {
				flush()
			}
			if len(body) == 0 {
				first = line
			}
			if len(text) > limit {
				for piece := 0; len(text) > 0; piece++ {
					n := min(limit, len(text))
					out = append(out, s.logMessage(epoch, line, piece, bytes.Clone(text[:n])))
					text = text[n:]
				}
			} else {
				body = append(body, text...)
			}
			line++
		}
	}
	flush()
	for i := range max(len(out)-1, 0) {
		out[i].Header[headerMore] = []string{"1"}
	}
	return out
}

func (s *Store) logMessage(epoch uint64, line int64, piece int, body []byte) *nats.Msg {
	m := nats.NewMsg(s.names.logSubject)
	m.Header[headerLine] = []string{strconv.FormatInt(line, 10)}
	m.Header[headerEpoch] = []string{strconv.FormatUint(epoch, 10)}
	if piece >= 0 {
		m.Header[headerPiece] = []string{strconv.Itoa(piece)}
	}
	m.Data = body
	return m
}

// put stores messages as the log's next, each once, and has the server sync them. It returns how many are stored.
//
// The server answers what it has synced, with all before. A message that is found in place of its answer may be written
// alone: its server was killed before the sync, began anew, and would lose it with its power. Where the server has answered
// nothing behind it, an empty message follows; what is lost meanwhile is sent again.
func (l *eventLog) put(s *Store, w *lease, messages []*nats.Msg) (stored int, err error) {
	given := len(messages)
	for i := 0; i < len(messages); i++ {
		err := l.publish(s, w, messages[i])
		switch {
		case errors.Is(err, errNotSynced) && l.last-l.synced.Load() <= uint64(i):
			i -= int(l.last-l.synced.Load()) + 1
			l.last = l.synced.Load()
		case i >= given && errors.Is(err, port.ErrNoSpace):
			l.synced.Store(l.last) // the next append that finds room has them synced
			return given, nil
		case err != nil:
			return i, err
		case i == len(messages)-1 && l.synced.Load() < l.last:
			end, err := logPlaceOf(messages[given-1].Header)
			if err != nil {
				return given, err
			}
			line := end.line + int64(bytes.Count(messages[given-1].Data, newline))
			messages = append(messages[:i+1:i+1], s.logMessage(w.epoch, line, -1, nil))
		}
	}
	return given, nil
}

// errNotSynced says that the log may end before a message that was found in place of its answer.
var errNotSynced = errors.New("store: the event log has lost its end, which was never synced: start the control plane again")

// publish stores one message as the log's next, once, however often it has to be sent.
func (l *eventLog) publish(s *Store, w *lease, m *nats.Msg) error {
	name := m.Header.Get(headerAppend)
	if name == "" {
		l.sent++
		name = fmt.Sprintf("%d.%s.%d", w.epoch, w.nonce, l.sent)
		m.Header[headerAppend] = []string{name}
	}
	m.Header[jetstream.ExpectedLastSeqHeader] = []string{strconv.FormatUint(l.last, 10)}
	for {
		ctx, cancel := context.WithTimeout(s.ctx, apiTimeout)
		ack, err := s.js.PublishMsg(ctx, m)
		cancel()
		if err == nil {
			l.answered(ack.Sequence, len(m.Data))
			return nil
		}
		gone := false
		if wrongSequence(err) {
			mine, err := s.isMine(l.last+1, name)
			switch {
			case err == nil && mine:
				l.stored(l.last+1, len(m.Data))
				return nil
			case err == nil:
				w.fence()
				return ErrFenced
			case !transient(err) && !errors.Is(err, errNoMessage):
				return fmt.Errorf("store: the event log takes no more: %w", err)
			}
			gone = errors.Is(err, errNoMessage) && l.synced.Load() < l.last
		} else if noSpace(err) {
			return l.full(s, err)
		} else if !transient(err) {
			return fmt.Errorf("store: the event log takes no more: %w", err)
		} else if lost := s.gone(s.ctx, m.Subject, err); lost != nil {
			return fmt.Errorf("store: the event log takes no more, because NATS has lost its stream %s: %w: %w", s.names.log, ErrLogDamaged, lost)
		}
		if w.fenced.Load() {
			return ErrFenced
		}
		if !s.pause(s.ctx, 50*time.Millisecond) {
			return ErrClosed
		}
		if gone {
			return errNotSynced
		}
	}
}

// full says that there is no room, and asks for a snapshot, which makes some.
func (l *eventLog) full(s *Store, err error) error {
	l.sinceSnapshot.Store(math.MaxInt64 / 2)
	s.makeRoom() // for the next try
	text := "its bound"
	if err != nil {
		text = err.Error()
	}
	return fmt.Errorf("store: %w: the event log takes %d bytes of at most %d (%s): a snapshot makes room", port.ErrNoSpace, l.bytes.Load(), s.options.LogBytesMax, text)
}

// answered is stored, by the server's answer.
func (l *eventLog) answered(seq uint64, size int) {
	l.stored(seq, size)
	l.synced.Store(seq)
}

func (l *eventLog) stored(seq uint64, size int) {
	l.last = seq
	l.bytes.Add(int64(size + logOverhead))
	l.sinceSnapshot.Add(int64(size + messageOverhead))
}

func wrongSequence(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

// isMine reports whether the log's message at a sequence is the one of that name. It is
// errNoMessage where there is none: the one that was sent before is still on its way.
func (s *Store) isMine(seq uint64, name string) (bool, error) {
	ctx, cancel := context.WithTimeout(s.ctx, apiTimeout)
	defer cancel()
	m, err := s.leaderGet(ctx, s.names.log, seq)
	if err != nil {
		return false, err
	}
	return m.header.Get(headerAppend) == name, nil
}

// fenceLog appends the marker of a new epoch: from then on no append of an earlier writer fits.
func (s *Store) fenceLog(ctx context.Context, w *lease) error {
	l := &s.events
	l.mutex.Lock()
	defer l.mutex.Unlock()
	for {
		last, lines, epoch, err := s.logEnd(ctx)
		if err != nil {
			return fmt.Errorf("store: the end of the log: %w", err)
		}
		if epoch >= w.epoch { // another has taken over since, or the lease's bucket was deleted: its revisions began anew
			if err := s.again(ctx, func(ctx context.Context) error { _, err := w.adopt(ctx); return err }); err != nil {
				return err
			}
		}
		w.epoch = max(w.epoch, epoch+1)
		l.last, l.line = last, lines
		marker := s.logMessage(w.epoch, lines+1, -1, nil)
		err = l.publishMarker(ctx, s, w, marker)
		if err == nil {
			break
		}
		if !errors.Is(err, errOvertaken) {
			return err
		}
	}
	l.epoch = w.epoch
	if l.line > 0 && !l.began {
		return l.loadHeader(ctx, s)
	}
	return nil
}

// errOvertaken says that the log is to be looked at once more: another writer has appended, or its end is another.
var errOvertaken = errors.New("store: the log went on")

func (l *eventLog) publishMarker(ctx context.Context, s *Store, w *lease, m *nats.Msg) error {
	for {
		gone := false
		name := fmt.Sprintf("%d.%s.marker.%d", w.epoch, w.nonce, l.last)
		m.Header[headerAppend] = []string{name}
		m.Header[jetstream.ExpectedLastSeqHeader] = []string{strconv.FormatUint(l.last, 10)}
		try, cancel := context.WithTimeout(ctx, apiTimeout)
		ack, err := s.js.PublishMsg(try, m)
		cancel()
		switch {
		case err == nil:
			l.answered(ack.Sequence, 0)
			return nil
		case wrongSequence(err):
			mine, err := s.isMine(l.last+1, name)
			if err == nil && mine {
				l.stored(l.last+1, 0)
				continue // until one is answered: see put
			}
			if err == nil {
				return errOvertaken
			}
			if gone = errors.Is(err, errNoMessage); !gone && !transient(err) {
				return fmt.Errorf("store: fencing the log: %w", err)
			}
		case noSpace(err):
			return fmt.Errorf("store: %w: no room in the log to take it over: raise store.nats.log_bytes_max, or make room on the disk", port.ErrNoSpace)
		case !transient(err):
			return fmt.Errorf("store: fencing the log: %w", err)
		}
		if !s.pause(ctx, 50*time.Millisecond) {
			return context.Cause(ctx)
		}
		if gone { // or the end that was seen, which was not synced
			return errOvertaken
		}
	}
}

// Header returns what the log's first line says, and whether it has one. Before Acquire it
// is what was there when the store was opened.
func (s *Store) Header() (trace.Header, bool) {
	s.events.mutex.Lock()
	defer s.events.mutex.Unlock()
	return s.events.header, s.events.began
}

// lines returns how many lines have been appended.
func (l *eventLog) lines() int64 {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.line
}
