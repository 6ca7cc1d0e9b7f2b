package jetstream

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/headway-rl/headway/loop/port"
)

// snapshotsKept is how many snapshots stay: the newest, and one before it in case the newest
// turns out to be damaged.
const snapshotsKept = 2

// slotsOfSnapshots is how many streams hold snapshots: the two that stay lie in one each, and the next is
// written into the third. A server that was killed reads a stream's file up to the first record
// that does not verify, and drops what follows. A damaged snapshot therefore takes no other with it.
const slotsOfSnapshots = snapshotsKept + 1

// slot is one of the streams that hold snapshots.
type slot struct {
	stream        jetstream.Stream
	name, subject string // of the stream, and what its subjects begin with
	// mine is the sequence of the stream's last message when the lease was last known to hold; 0 for a stream without messages.
	mine uint64
}

// states is what the store knows of the snapshots.
type states struct {
	mutex sync.Mutex // held while one is written
	slots [slotsOfSnapshots]slot
	// total are the bytes that the streams take.
	total atomic.Int64
}

// snapshot is one that a slot holds, whole or not.
type snapshot struct {
	slot *slot
	line int64
	// last is the sequence of the slot's last message when it was listed.
	last uint64
}

func (k snapshot) subject() string { return k.slot.subject + "." + strconv.FormatInt(k.line, 10) }

// SnapshotBytes returns what the snapshots take, in bytes as the server counts them: two, and
// for a moment three. On the disk there are at most two of the server's files of 4 MB more a
// stream, as long as snapshots are written.
func (s *Store) SnapshotBytes() int64 { return s.states.total.Load() }

// measureSnapshots looks up what the snapshots take.
func (s *Store) measureSnapshots(ctx context.Context) error {
	total := int64(0)
	for i := range s.states.slots {
		state, err := s.streamInfo(ctx, s.states.slots[i].stream)
		if err != nil {
			return fmt.Errorf("store: the snapshots: %w", err)
		}
		total += int64(state.Bytes)
	}
	s.states.total.Store(total)
	return nil
}

// WantsSnapshot reports that a quarter of the log's bound was written since the last
// snapshot. More would leave no room for the lines that come until it is taken. The log keeps those
// between two snapshots and those that came after. A bound of less than some times the size of the
// state therefore costs more writing for snapshots than for the log.
func (s *Store) WantsSnapshot() bool {
	return s.events.sinceSnapshot.Load() >= s.options.LogBytesMax/4
}

// Snapshot keeps a state of the run as of the log's first line lines. It is read back, and so is every one
// before it, before anything is given up for it. The two newest that verify are kept. The log then gives
// up lines, as far as the mirror has them: those that the older of the two covers.
func (s *Store) Snapshot(line int64, state []byte) error {
	if _, err := s.writer(); err != nil {
		return err
	}
	if lines := s.events.lines(); line > lines || line < 1 {
		return fmt.Errorf("store: a snapshot as of line %d of a log of %d lines, want one of its lines", line, lines)
	}
	s.states.mutex.Lock()
	defer s.states.mutex.Unlock()
	err := s.keep(line, state)
	if !errors.Is(err, jetstream.ErrStreamNotFound) {
		return err
	}
	// A server that starts leaves out a stream whose description is damaged. The run goes on with what the others hold.
	for i := range s.states.slots {
		if _, err := s.makeStream(s.ctx, s.slotConfig(&s.states.slots[i])); err != nil {
			return err
		}
	}
	return s.keep(line, state)
}

// keep is Snapshot, as long as all slots are there.
func (s *Store) keep(line int64, state []byte) error {
	since := s.events.sinceSnapshot.Load() // lines are appended beside what follows
	if err := s.markSlots(); err != nil {
		return fmt.Errorf("store: the snapshots before the one at line %d: %w", line, err)
	}
	good, bad, err := s.verifySnapshots(s.ctx)
	if err != nil {
		return fmt.Errorf("store: the snapshots before the one at line %d: %w", line, err)
	}
	s.sayDamaged(bad)
	good = good[max(0, len(good)-snapshotsKept):]
	written, err := s.writeSnapshot(line, state, good)
	if err != nil {
		return fmt.Errorf("store: snapshot at line %d: %w", line, err)
	}
	s.events.sinceSnapshot.Add(-since)
	good = slices.DeleteFunc(good, func(k snapshot) bool { return k.line == line })
	good = append(good[max(0, len(good)+1-snapshotsKept):], written)
	if err := s.dropSnapshots(good); err != nil {
		return fmt.Errorf("store: removing old snapshots: %w", err)
	}
	return s.trimCovered(good)
}

// trimCovered gives up the log's lines that the snapshots kept cover, all of which verify.
func (s *Store) trimCovered(kept []snapshot) error {
	if len(kept) < snapshotsKept {
		return nil
	}
	covered := kept[0].line
	if s.events.bytes.Load() > s.options.LogBytesMax/4*3 {
		covered = kept[1].line // a run that cannot go on is worse than one snapshot to go back to
	}
	err := s.trim(s.ctx, covered)
	if _, deposed := s.writer(); deposed != nil {
		return deposed // its successor trims the log as well
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		s.options.Logf("store: giving up old lines of the log: %v", err)
	}
	return nil
}

// writeSnapshot writes a snapshot into a slot that holds none of those to keep, and reads it back.
func (s *Store) writeSnapshot(line int64, state []byte, keep []snapshot) (snapshot, error) {
	free := slices.IndexFunc(s.states.slots[:], func(x slot) bool {
		return !slices.ContainsFunc(keep, func(k snapshot) bool { return k.slot.name == x.name })
	})
	to := snapshot{slot: &s.states.slots[free], line: line}
	if err := s.emptySlot(to.slot); err != nil {
		return to, err
	}
	if err := s.writeChunks(s.ctx, to.subject(), state); err != nil {
		return to, err
	}
	back, err := s.readChunks(s.ctx, to.slot.name, to.subject())
	if err == nil && !bytes.Equal(back, state) {
		err = errDamaged
	}
	if err != nil {
		return to, fmt.Errorf("it does not read back as it was written, so that nothing is given up for it: %w", err)
	}
	return to, nil
}

// emptySlot removes what a slot holds. What a successor of this writer puts there meanwhile stays.
func (s *Store) emptySlot(x *slot) error {
	if x.mine == 0 {
		return nil
	}
	return s.purge(s.ctx, x.stream, jetstream.WithPurgeSequence(x.mine+1))
}

// markSlots notes what the slots hold. It returns while the lease holds: nothing of that is a successor's.
func (s *Store) markSlots() error {
	for i := range s.states.slots {
		x := &s.states.slots[i]
		state, err := s.streamInfo(s.ctx, x.stream)
		if err != nil {
			return err
		}
		if x.mine = state.LastSeq; state.Msgs == 0 {
			x.mine = 0
		}
	}
	return s.awaitHolding()
}

// dropSnapshots removes the snapshots that are older than those kept, or damaged, with the files that they
// were in. One that is newer is a successor's.
func (s *Store) dropSnapshots(kept []snapshot) error {
	there, err := s.snapshots(s.ctx)
	if err != nil {
		return err
	}
	for _, old := range there {
		if slices.ContainsFunc(kept, func(k snapshot) bool { return k.slot == old.slot && k.line == old.line }) || old.line > kept[len(kept)-1].line {
			continue
		}
		what := jetstream.WithPurgeSequence(old.last + 1)
		if slices.ContainsFunc(kept, func(k snapshot) bool { return k.slot == old.slot }) {
			what = jetstream.WithPurgeSubject(old.subject() + ".*")
		}
		if err := s.purge(s.ctx, old.slot.stream, what); err != nil {
			return err
		}
	}
	return s.measureSnapshots(s.ctx)
}

// snapshots lists all snapshots by their lines, ascending; those that are not whole too.
func (s *Store) snapshots(ctx context.Context) ([]snapshot, error) {
	var out []snapshot
	for i := range s.states.slots {
		x := &s.states.slots[i]
		subjects, last, err := s.subjectsOf(ctx, x.stream, x.subject)
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
		for _, line := range slices.Compact(lines) {
			out = append(out, snapshot{slot: x, line: line, last: last})
		}
	}
	slices.SortStableFunc(out, func(a, b snapshot) int { return cmp.Compare(a.line, b.line) })
	return out, nil
}

// damagedSnapshot is a snapshot that cannot be used, and why.
type damagedSnapshot struct {
	snapshot
	why error
}

// verifySnapshots reads every snapshot, and returns those that verify and those that do not by their lines, ascending.
func (s *Store) verifySnapshots(ctx context.Context) (good []snapshot, bad []damagedSnapshot, err error) {
	there, err := s.snapshots(ctx)
	if err != nil {
		return nil, nil, err
	}
	known := s.events.lines()
	for _, k := range there {
		if k.line > known {
			bad = append(bad, damagedSnapshot{k, aheadOfLog(known)})
			continue
		}
		_, err := s.readChunks(ctx, k.slot.name, k.subject())
		switch {
		case errors.Is(err, errDamaged):
			bad = append(bad, damagedSnapshot{k, err})
		case err != nil:
			return nil, nil, err
		default:
			good = append(good, k)
		}
	}
	return good, bad, nil
}

func aheadOfLog(known int64) error {
	return fmt.Errorf("the log has only %d lines: it has lost its end", known)
}

// sayDamaged says which snapshots cannot be used.
func (s *Store) sayDamaged(bad []damagedSnapshot) {
	for _, b := range bad {
		s.options.Logf("store: the snapshot as of line %d (stream %s) cannot be used and does not count among the %d that are kept: %v", b.line, b.slot.name, snapshotsKept, b.why)
	}
}

// scrub reads all snapshots and says which are damaged.
func (s *Store) scrub(ctx context.Context) error {
	_, bad, err := s.verifySnapshots(ctx)
	if err != nil {
		return fmt.Errorf("store: verifying the snapshots: %w", err)
	}
	s.sayDamaged(bad)
	return nil
}

// ReadSnapshot returns the newest snapshot as of fewer than before lines, and its line; nil if
// there is none. For one that is damaged, or ahead of the log, it returns its line and an error that
// wraps port.ErrSnapshotDamaged.
func (s *Store) ReadSnapshot(before int64) (line int64, state []byte, err error) {
	if s.ctx.Err() != nil {
		return 0, nil, ErrClosed
	}
	there, err := s.snapshots(s.ctx)
	if err != nil {
		return 0, nil, fmt.Errorf("store: %w", err)
	}
	there = slices.DeleteFunc(there, func(k snapshot) bool { return k.line >= before })
	known := s.events.lines()
	var damaged error
	for _, k := range slices.Backward(there) {
		if damaged != nil && k.line != line {
			break // two slots may hold the same line
		}
		if line = k.line; line > known {
			damaged = aheadOfLog(known)
			continue
		}
		state, err := s.readChunks(s.ctx, k.slot.name, k.subject())
		if err == nil {
			return line, append([]byte{}, state...), nil
		}
		if !errors.Is(err, errDamaged) {
			return 0, nil, fmt.Errorf("store: snapshot at line %d: %w", line, err)
		}
		damaged = err
	}
	if damaged != nil {
		return line, nil, fmt.Errorf("%w: %w", port.ErrSnapshotDamaged, damaged)
	}
	return 0, nil, nil
}

// makeRoom gives up what the newest snapshot that verifies covers of a log that is full: whoever is to take
// another snapshot has lines to append before it.
func (s *Store) makeRoom() {
	there, err := s.snapshots(s.ctx)
	if err != nil {
		return
	}
	for _, k := range slices.Backward(there) {
		if _, err := s.readChunks(s.ctx, k.slot.name, k.subject()); err != nil {
			continue
		}
		if err := s.trim(s.ctx, k.line); err != nil {
			s.options.Logf("store: making room in the log: %v", err)
		}
		return
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
	before := s.events.bytes.Load()
	if state, err = s.streamInfo(ctx, s.log); err == nil {
		s.events.bytes.Add(int64(state.Bytes) - before) // what is appended meanwhile counts twice until the next time
	}
	return err
}
