package jetstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// snapshotsKept is how many snapshots stay: the newest, and one before it in case the newest
// turns out to be damaged.
const snapshotsKept = 2

// Snapshot keeps a state of the run as of the log's first line lines. When it is durable, the
// log gives up the lines that the older of the two snapshots kept covers, as far as the
// mirror has them.
func (s *Store) Snapshot(line int64, state []byte) error {
	if _, err := s.writer(); err != nil {
		return err
	}
	if lines := s.events.lines(); line > lines || line < 1 {
		return fmt.Errorf("store: a snapshot as of line %d of a log of %d lines, want one of its lines", line, lines)
	}
	if err := s.writeChunks(s.ctx, s.snapshotSubject(line), state); err != nil {
		return fmt.Errorf("store: snapshot at line %d: %w", line, err)
	}
	s.events.sinceSnapshot.Store(0)
	lines, err := s.snapshots(s.ctx)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	for len(lines) > snapshotsKept {
		if err := s.purge(s.ctx, s.state, jetstream.WithPurgeSubject(s.snapshotSubject(lines[0])+".*")); err != nil {
			return fmt.Errorf("store: removing the snapshot at line %d: %w", lines[0], err)
		}
		lines = lines[1:]
	}
	if len(lines) == snapshotsKept {
		covered := lines[0]
		if s.events.bytes.Load() > s.options.LogBytesMax/4*3 {
			covered = lines[1] // a run that cannot go on is worse than one snapshot to go back to
		}
		if err := s.trim(s.ctx, covered); err != nil && !errors.Is(err, context.Canceled) {
			s.options.Logf("store: giving up old lines of the log: %v", err)
		}
	}
	return nil
}

func (s *Store) snapshotSubject(line int64) string {
	return s.names.snapshots + "." + strconv.FormatInt(line, 10)
}

// snapshots lists the lines of all snapshots, ascending; those that are not whole too.
func (s *Store) snapshots(ctx context.Context) ([]int64, error) {
	subjects, err := s.subjectsOf(ctx, s.names.snapshots)
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
		state, err := s.readChunks(s.ctx, s.snapshotSubject(line))
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
