package jetstream

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go/jetstream"
)

// snapshotsKept is how many snapshots stay: the newest, and one before it in case the newest
// turns out to be damaged.
const snapshotsKept = 2

// states is what the store knows of the snapshots.
type states struct {
	mutex sync.Mutex // held while one is written
	// first is the sequence of the first chunk, by line, of the snapshots that this process
	// wrote and that are kept.
	first map[int64]uint64
	// total are the bytes that the stream takes.
	total atomic.Int64
}

// SnapshotBytes returns what the snapshots take, in bytes as the server counts them: two, and
// for a moment three. On the disk there are at most two of the server's files of 4 MB more,
// as long as snapshots are written.
func (s *Store) SnapshotBytes() int64 { return s.states.total.Load() }

// measureSnapshots looks up what the snapshots take.
func (s *Store) measureSnapshots(ctx context.Context) error {
	state, err := s.streamInfo(ctx, s.kept)
	if err != nil {
		return fmt.Errorf("store: the snapshots: %w", err)
	}
	s.states.total.Store(int64(state.Bytes))
	return nil
}

// WantsSnapshot reports that a quarter of the log's bound was written since the last
// snapshot. More would leave no room for the lines that come until it is taken. The log keeps those
// between two snapshots and those that came after. A bound of less than some times the size of the
// state therefore costs more writing for snapshots than for the log.
func (s *Store) WantsSnapshot() bool {
	return s.events.sinceSnapshot.Load() >= s.options.LogBytesMax/4
}

// Snapshot keeps a state of the run as of the log's first line lines. When it is durable, the log
// gives up lines, as far as the mirror has them. Those are the lines that the older of the two
// snapshots kept covers.
func (s *Store) Snapshot(line int64, state []byte) error {
	if _, err := s.writer(); err != nil {
		return err
	}
	if lines := s.events.lines(); line > lines || line < 1 {
		return fmt.Errorf("store: a snapshot as of line %d of a log of %d lines, want one of its lines", line, lines)
	}
	s.states.mutex.Lock()
	defer s.states.mutex.Unlock()
	first, err := s.writeChunks(s.ctx, s.snapshotSubject(line), state)
	if err != nil {
		return fmt.Errorf("store: snapshot at line %d: %w", line, err)
	}
	s.events.sinceSnapshot.Store(0)
	lines, err := s.dropSnapshots(line, first)
	if err != nil {
		return fmt.Errorf("store: removing old snapshots: %w", err)
	}
	if len(lines) == snapshotsKept {
		covered := lines[0]
		if s.events.bytes.Load() > s.options.LogBytesMax/4*3 {
			covered = lines[1] // a run that cannot go on is worse than one snapshot to go back to
		}
		err := s.trim(s.ctx, covered)
		if _, deposed := s.writer(); deposed != nil {
			return deposed // its successor trims the log as well
		}
		if err != nil && !errors.Is(err, context.Canceled) {
			s.options.Logf("store: giving up old lines of the log: %v", err)
		}
	}
	return nil
}

// dropSnapshots removes all but the newest snapshots after one was written, whose first chunk
// has the sequence first, and returns the lines of those that stay.
func (s *Store) dropSnapshots(line int64, first uint64) ([]int64, error) {
	lines, err := s.snapshots(s.ctx)
	if err != nil {
		return nil, err
	}
	// What is before the first that stays goes at once, with the files that it was in.
	begins := s.states.first
	s.states.first = map[int64]uint64{}
	from := uint64(math.MaxUint64)
	for _, kept := range lines[max(0, len(lines)-snapshotsKept):] {
		at, known := begins[kept]
		if kept == line {
			at, known = first, true
		}
		if known {
			s.states.first[kept] = at
		}
		from = min(from, at) // 0 where that is not known
	}
	if from > 1 && len(lines) > snapshotsKept {
		if err := s.purge(s.ctx, s.kept, jetstream.WithPurgeSequence(from)); err != nil {
			return nil, err
		}
		if lines, err = s.snapshots(s.ctx); err != nil {
			return nil, err
		}
	}
	// What another writer left between those that stay.
	for len(lines) > snapshotsKept {
		if err := s.purge(s.ctx, s.kept, jetstream.WithPurgeSubject(s.snapshotSubject(lines[0])+".*")); err != nil {
			return nil, err
		}
		lines = lines[1:]
	}
	return lines, s.measureSnapshots(s.ctx)
}

func (s *Store) snapshotSubject(line int64) string {
	return s.names.snapshots + "." + strconv.FormatInt(line, 10)
}

// snapshots lists the lines of all snapshots, ascending; those that are not whole too.
func (s *Store) snapshots(ctx context.Context) ([]int64, error) {
	subjects, err := s.subjectsOf(ctx, s.kept, s.names.snapshots)
	if err != nil {
		return nil, err
	}
	var lines []int64
	for _, subject := range subjects {
		digits, _, _ := strings.Cut(subject, ".")
		if line, err := strconv.ParseInt(digits, 10, 64); err == nil {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return slices.Compact(lines), nil
}

// ReadSnapshot returns the newest snapshot as of fewer than before lines, and its line; nil if
// there is none. One that is damaged, or ahead of the log, is passed over.
func (s *Store) ReadSnapshot(before int64) (line int64, state []byte, err error) {
	if s.ctx.Err() != nil {
		return 0, nil, ErrClosed
	}
	lines, err := s.snapshots(s.ctx)
	if err != nil {
		return 0, nil, fmt.Errorf("store: %w", err)
	}
	known := s.events.lines()
	for _, line := range slices.Backward(lines) {
		if line >= before || line > known {
			continue
		}
		state, err := s.readChunks(s.ctx, s.names.kept, s.snapshotSubject(line))
		if errors.Is(err, errDamaged) {
			continue
		}
		if err != nil {
			return 0, nil, fmt.Errorf("store: snapshot at line %d: %w", line, err)
		}
		return line, append([]byte{}, state...), nil
	}
	return 0, nil, nil
}

// makeRoom gives up what the newest snapshot covers of a log that is full: whoever is to take
// another snapshot has lines to append before it.
func (s *Store) makeRoom() {
	lines, err := s.snapshots(s.ctx)
	if err != nil || len(lines) == 0 {
		return
	}
	if err := s.trim(s.ctx, lines[len(lines)-1]); err != nil {
		s.options.Logf("store: making room in the log: %v", err)
	}
}

func (s *Store) purge(ctx context.Context, stream jetstream.Stream, what jetstream.StreamPurgeOpt) error {
	return s.again(ctx, func(ctx context.Context) error { return stream.Purge(ctx, what) })
}

// trim gives up the log's messages that hold none of the lines after line, nor any that the
// mirror lacks. The last message stays: it says where the log is.
func (s *Store) trim(ctx context.Context, line int64) error {
	if line = s.mirror.covered(line); line < 1 {
		return nil
	}
	seq, err := s.seekLine(ctx, line+1)
	if err != nil {
		return err
	}
	state, err := s.streamInfo(ctx, s.log)
	if err != nil || min(seq, state.LastSeq) <= state.FirstSeq {
		return err
	}
	if err := s.purge(ctx, s.log, jetstream.WithPurgeSequence(min(seq, state.LastSeq))); err != nil {
		return err
	}
	if state, err = s.streamInfo(ctx, s.log); err == nil {
		s.events.bytes.Store(int64(state.Bytes))
	}
	return err
}
