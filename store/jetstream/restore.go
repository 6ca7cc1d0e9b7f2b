package jetstream

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/headway-rl/headway/loop/trace"
)

// ErrLogDamaged is wrapped by the error of a log that has lost lines which a mirror may have: see RestoreLog.
var ErrLogDamaged = errors.New("the log is damaged")

// ErrLogWhole is what RestoreLog answers where the log has every line of its mirror.
var ErrLogWhole = errors.New("store: the log has every line of its mirror: nothing is to be restored")

// Restored says what RestoreLog did.
type Restored struct {
	// End is where log and mirror end now. Had is how many of the lines the damaged log could still be read to.
	End trace.Position
	Had int64
	// From is the first line that is in the log again, counted from 1: the oldest that a snapshot needs.
	From int64
	// Aside is the directory in which the damaged log lies now.
	Aside string
}

// RestoreLog writes the log of an embedded server anew from its mirror, Options.TracePath. The damaged one is
// moved aside, whole. Payloads, snapshots and the mirror stay as they are. A mirror that does not verify,
// or is another log's, is refused before anything is changed. So is one that ends before a line which the log or a
// snapshot still shows.
// A process that dies in the middle leaves a log that does not open, and the mirror to begin again from.
func RestoreLog(ctx context.Context, o Options) (Restored, error) {
	if err := o.Validate(); err != nil {
		return Restored{}, err
	}
	if o.URL != "" || o.TracePath == "" {
		return Restored{}, errors.New("store: a log is restored in an embedded server's directory, and from a mirror")
	}
	s := newStore(o)
	restored, err := s.restoreLog(ctx)
	return restored, errors.Join(err, s.Close())
}

func (s *Store) restoreLog(ctx context.Context) (Restored, error) {
	if err := s.open(ctx); err != nil {
		return Restored{}, err
	}
	left, err := s.remains(ctx)
	if err != nil {
		return Restored{}, err
	}
	mirror, err := os.Open(s.options.TracePath)
	if err != nil {
		return Restored{}, fmt.Errorf("store: the mirror: %w", err)
	}
	defer mirror.Close()
	from, size, end, err := left.compare(mirror)
	if err == nil && size > s.options.LogBytesMax/2 {
		err = fmt.Errorf("its lines from %d on are %d bytes, more than half of what the log may take: raise store.nats.log_bytes_max in the run's document", left.from, size)
	}
	if err != nil {
		return Restored{}, fmt.Errorf("store: the mirror %s: %w", mirror.Name(), err)
	}
	restored := Restored{End: end, Had: left.lines, From: left.from}
	if restored.Aside, err = s.moveLogAside(ctx); err != nil {
		return restored, err
	}
	if _, err := mirror.Seek(0, io.SeekStart); err != nil {
		return restored, fmt.Errorf("store: the mirror: %w", err)
	}
	text := trace.NewText(mirror)
	if _, err := io.CopyN(io.Discard, text, from); err != nil {
		return restored, fmt.Errorf("store: the mirror: %w", err)
	}
	if err := s.rewriteLog(io.LimitReader(text, size), left); err != nil {
		return restored, fmt.Errorf("store: writing the log anew: %w", err)
	}
	return restored, nil
}

// remains is what can still be read of a damaged log and what belongs to it.
type remains struct {
	lines int64 // up to its end
	epoch uint64
	whole bool // its last message is there
	// sums are what lines end with that can still be read, by their numbers from 1.
	sums map[int64]string
	// shown is the last line that log or snapshots know of, from the first that the two kept snapshots need.
	shown, from int64
}

// remains reads what is left of the log and its snapshots.
func (s *Store) remains(ctx context.Context) (remains, error) {
	left := remains{sums: map[int64]string{}, from: 1, whole: true}
	if text, err := s.readChunks(ctx, s.names.head, s.names.header); err == nil {
		left.sums[1] = sumOf(text)
	}
	state, err := s.streamInfo(ctx, s.log)
	if err != nil {
		return left, fmt.Errorf("store: the log: %w", err)
	}
	for seq := state.LastSeq; seq >= max(state.FirstSeq, 1) && (left.lines == 0 || left.sums[left.lines] == ""); seq-- {
		var m message
		err := s.again(ctx, func(ctx context.Context) (err error) {
			m, err = s.leaderGet(ctx, s.names.log, seq)
			return err
		})
		if errors.Is(err, errNoMessage) {
			left.whole = left.whole && left.lines > 0
			continue
		}
		if err != nil {
			return left, fmt.Errorf("store: message %d of the log: %w", seq, err)
		}
		at, err := logPlaceOf(m.header)
		if err != nil {
			continue
		}
		last := at.line - 1 + int64(bytes.Count(m.data, newline))
		left.lines, left.epoch = max(left.lines, last), max(left.epoch, at.epoch)
		if bytes.HasSuffix(m.data, newline) {
			left.sums[last] = sumOf(m.data)
		}
	}
	s.events.line = math.MaxInt64 // of which snapshot the line is there, the mirror says
	good, bad, err := s.verifySnapshots(ctx)
	if err != nil {
		return left, fmt.Errorf("store: the snapshots: %w", err)
	}
	s.sayDamaged(bad)
	left.shown = left.lines
	for _, k := range good {
		left.shown = max(left.shown, k.line)
	}
	for _, k := range bad { // the log had its line all the same
		left.shown = max(left.shown, k.line)
	}
	if good = good[max(0, len(good)-snapshotsKept):]; len(good) > 0 {
		left.from = good[0].line
	}
	return left, nil
}

// sumOf is what a whole line ends with.
func sumOf(line []byte) string { return string(line[max(0, len(line)-len(endOfLine(0))):]) }

func endOfLine(sum uint32) string { return fmt.Sprintf("%08x\"}\n", sum) }

// compare reads a mirror, and says at which byte of its text the line left.from begins, how many bytes follow, and where the
// mirror ends. A last line without an end is none.
func (left remains) compare(mirror io.Reader) (from, size int64, end trace.Position, err error) {
	r, err := trace.NewReader(mirror)
	for err == nil {
		at := r.Position()
		if want := left.sums[at.Line]; want != "" && want != endOfLine(at.Sum) {
			return 0, 0, at, fmt.Errorf("it is another log's: line %d differs", at.Line)
		}
		if at.Line == left.from-1 {
			from = r.Offset()
		}
		_, err = r.Next()
	}
	if torn, is := errors.AsType[*trace.Error](err); !errors.Is(err, io.EOF) && (!is || !torn.Torn || r == nil) {
		return 0, 0, end, fmt.Errorf("it is damaged itself, so that nothing can be restored from it: %w", err)
	}
	end = r.Position()
	switch {
	case end.Line < left.shown:
		err = fmt.Errorf("it ends at line %d (event %d), and the log or a snapshot still shows line %d: the lines between would be lost", end.Line, end.Seq, left.shown)
	case end.Line == left.lines && left.whole:
		err = ErrLogWhole
	default:
		err = nil
	}
	return from, r.Offset() - from, end, err
}

// moveLogAside takes the damaged log out of the server's directory, and makes the stream anew.
func (s *Store) moveLogAside(ctx context.Context) (aside string, err error) {
	for n := 1; ; n++ {
		aside = s.options.Dir + "-damaged-log-" + strconv.Itoa(n)
		if _, err := os.Lstat(aside); errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	err = s.embedded.restartAfter(func() error {
		return os.Rename(filepath.Join(s.options.Dir, "jetstream", "$G", "streams", s.names.log), aside)
	})
	if err != nil {
		return "", fmt.Errorf("store: moving the damaged log aside: %w", err)
	}
	// A request over the connection to the server before would wait for an answer until it times out.
	s.control.Close()
	if s.control, err = s.connect(ctx, "control"); err != nil {
		return aside, err
	}
	if s.js, err = jetstream.New(s.control); err != nil {
		return aside, fmt.Errorf("store: %w", err)
	}
	for _, c := range s.streams() {
		if c.config.Name == s.names.log {
			s.log, err = s.makeStream(ctx, c.config)
		}
	}
	return aside, err
}

// rewriteLog appends lines to the empty log, the first of which is left.from. Nobody else can: the directory is locked.
func (s *Store) rewriteLog(src io.Reader, left remains) error {
	w := &lease{store: s, nonce: rand.Text(), epoch: left.epoch, lost: make(chan struct{})}
	l := &s.events
	l.last, l.line = 0, left.from-1
	l.synced.Store(0)
	lines, batch := bufio.NewReaderSize(src, 1<<20), []byte(nil)
	for {
		line, err := lines.ReadBytes('\n')
		ended := errors.Is(err, io.EOF)
		if err != nil && !ended {
			return err
		}
		if l.line == 0 && batch == nil {
			if err := l.begin(s, line); err != nil {
				return err
			}
		}
		if batch = append(batch, line...); !ended && len(batch) < logChunk {
			continue
		}
		if err := s.disk.room(len(batch)); err != nil {
			return err
		}
		if _, err := l.put(s, w, l.messages(s, w.epoch, [][]byte{batch})); err != nil {
			return err
		}
		l.line += int64(bytes.Count(batch, newline))
		if batch = batch[:0]; ended {
			return nil
		}
	}
}
