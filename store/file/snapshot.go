package file

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/headway-rl/headway/internal/replace"
	"github.com/headway-rl/headway/loop/port"
)

const (
	snapshotPrefix = "snapshot-"
	// snapshotsKept is how many snapshots stay: the newest, and one before it in
	// case the newest turns out to be damaged.
	snapshotsKept = 2
	temporary     = ".tmp"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Snapshot keeps a state of the run as of the log's first line lines. It is written
// aside, read back and renamed, so that it is there whole or not at all.
func (s *Store) Snapshot(line int64, state []byte) error {
	s.logMutex.Lock()
	defer s.logMutex.Unlock()
	if s.log == nil {
		return ErrClosed
	}
	if line < 1 || line > s.end.line {
		return fmt.Errorf("store: a snapshot as of line %d of a log of %d", line, s.end.line)
	}
	at, err := s.seek(line, s.end.offset)
	if err != nil {
		return fmt.Errorf("store: snapshot as of line %d: %w", line, err)
	}
	last, err := s.checksumAt(at)
	if err != nil {
		return fmt.Errorf("store: snapshot as of line %d: %w", line, err)
	}
	path := s.snapshotPath(line)
	err = writeFile(path+temporary, s.options.Always, snapshotHeader(at, last, state), state)
	if err == nil {
		err = readsBack(path+temporary, at, last, state)
	}
	if err == nil {
		err = os.Rename(path+temporary, path)
	}
	if err == nil && s.options.Always {
		err = replace.Directory(s.stateDir())
	}
	if err != nil {
		os.Remove(path + temporary)
		if noSpace(err) {
			return full(fmt.Sprintf("the snapshot as of line %d", line), err)
		}
		return fmt.Errorf("store: snapshot as of line %d: %w", line, err)
	}
	s.marks = append(s.marks, at)
	return s.pruneSnapshots()
}

// checksumDigits is how many digits a line's checksum has, before the end of the line.
const checksumDigits, lineEnd = 8, "\"}\n"

// checksumAt returns the checksum that the line before a place ends with, as it stands
// there; it says whether a log is the one that a snapshot is of.
func (s *Store) checksumAt(at mark) (string, error) {
	text := make([]byte, checksumDigits+len(lineEnd))
	if at.offset < int64(len(text)) {
		return "", fmt.Errorf("byte %d is before the end of any line", at.offset)
	}
	if _, err := s.log.ReadAt(text, at.offset-int64(len(text))); err != nil {
		return "", err
	}
	if string(text[checksumDigits:]) != lineEnd {
		return "", fmt.Errorf("no line ends at byte %d", at.offset)
	}
	return string(text[:checksumDigits]), nil
}

// snapshotHeader is the first line of a snapshot's file: where it is of the log, what
// the line before ends with, and a checksum over that and the state.
func snapshotHeader(at mark, last string, state []byte) []byte {
	text := fmt.Appendf(nil, "headway snapshot 2 %d %d %s %d ", at.line, at.offset, last, len(state))
	return fmt.Appendf(text, "%08x\n", crc32.Update(crc32.Checksum(text, castagnoli), castagnoli, state))
}

func writeFile(path string, sync bool, parts ...[]byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	for _, p := range parts {
		if _, err = f.Write(p); err != nil {
			break
		}
	}
	if err == nil && sync {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// readsBack reports whether a snapshot's file holds what was written.
func readsBack(path string, at mark, last string, state []byte) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if header := snapshotHeader(at, last, state); !bytes.HasPrefix(data, header) || !bytes.Equal(data[len(header):], state) {
		return fmt.Errorf("it does not read back as it was written, so that nothing is given up for it: %w", errDamaged)
	}
	return nil
}

// ReadSnapshot returns the newest snapshot as of fewer than before lines, and its
// line; nil if there is none. For one that does not verify, or that is ahead of the log,
// it returns its line and an error that wraps port.ErrSnapshotDamaged.
func (s *Store) ReadSnapshot(before int64) (line int64, state []byte, err error) {
	lines, err := s.snapshots()
	if err != nil {
		return 0, nil, err
	}
	s.logMutex.Lock()
	end := s.end
	s.logMutex.Unlock()
	for _, line := range slices.Backward(lines) {
		if line >= before {
			continue
		}
		data, err := os.ReadFile(s.snapshotPath(line))
		if errors.Is(err, fs.ErrNotExist) {
			continue // a newer one has taken its place meanwhile
		}
		if err != nil {
			return 0, nil, fmt.Errorf("store: %w", err)
		}
		at, _, state, ok := parseSnapshot(data)
		switch {
		case !ok || at.line != line:
			return line, nil, fmt.Errorf("%w: %s is %w", port.ErrSnapshotDamaged, s.snapshotPath(line), errDamaged)
		case line > end.line || at.offset > end.offset:
			return line, nil, fmt.Errorf("%w: the log has only %d lines: it has lost its end", port.ErrSnapshotDamaged, end.line)
		}
		return line, state, nil
	}
	return 0, nil, nil
}

// parseSnapshot returns what a snapshot's file holds, if it verifies.
func parseSnapshot(data []byte) (at mark, last string, state []byte, ok bool) {
	header, state, found := bytes.Cut(data, newline)
	if !found {
		return mark{}, "", nil, false
	}
	if _, err := fmt.Sscanf(string(header), "headway snapshot 2 %d %d %s ", &at.line, &at.offset, &last); err != nil {
		return mark{}, "", nil, false
	}
	return at, last, state, bytes.Equal(data[:len(header)+1], snapshotHeader(at, last, state))
}

// findMarks notes the places of the snapshots that fit a log of so many bytes: where
// they say that their line ends, that line ends.
func (s *Store) findMarks(size int64) error {
	lines, err := s.snapshots()
	if err != nil {
		return err
	}
	for _, line := range lines {
		data, err := os.ReadFile(s.snapshotPath(line))
		if err != nil {
			return fmt.Errorf("store: %w", err)
		}
		at, last, _, ok := parseSnapshot(data)
		if !ok || at.line != line || at.offset > size {
			continue
		}
		if found, err := s.checksumAt(at); err == nil && found == last {
			s.marks = append(s.marks, at)
		}
	}
	return nil
}

func (s *Store) snapshotPath(line int64) string {
	return filepath.Join(s.stateDir(), fmt.Sprintf("%s%016d", snapshotPrefix, line))
}

// snapshots lists the lines of all snapshots, ascending.
func (s *Store) snapshots() ([]int64, error) {
	names, err := os.ReadDir(s.stateDir())
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	var lines []int64
	for _, entry := range names {
		digits, ok := strings.CutPrefix(entry.Name(), snapshotPrefix)
		if line, err := strconv.ParseInt(digits, 10, 64); ok && err == nil {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return lines, nil
}

// pruneSnapshots deletes all but the newest snapshots that verify, and forgets their marks. Those
// ahead of the log are of a log that is gone, and go first.
func (s *Store) pruneSnapshots() error {
	lines, err := s.snapshots()
	if err != nil {
		return err
	}
	good := slices.DeleteFunc(slices.Clone(lines), func(line int64) bool { return line > s.end.line || !s.verifies(line) })
	kept := good[max(len(good)-snapshotsKept, 0):]
	for _, line := range lines {
		if slices.Contains(kept, line) {
			continue
		}
		if err := os.Remove(s.snapshotPath(line)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("store: %w", err)
		}
	}
	s.marks = slices.DeleteFunc(s.marks, func(m mark) bool { return !slices.Contains(kept, m.line) })
	return nil
}

// verifies reports whether a snapshot's file is what was written.
func (s *Store) verifies(line int64) bool {
	data, err := os.ReadFile(s.snapshotPath(line))
	at, _, _, ok := parseSnapshot(data)
	return err == nil && ok && at.line == line
}
