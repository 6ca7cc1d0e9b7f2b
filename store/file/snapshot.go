package file

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/headway-rl/headway/internal/replace"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/loop/trace"
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
// aside, read back and renamed, so that it is there whole or not at all. Appends go on beside it.
func (s *Store) Snapshot(line int64, state []byte) error {
	s.snapshotMutex.Lock()
	defer s.snapshotMutex.Unlock()
	m, err := s.markAt(line)
	if err != nil {
		return err
	}
	path := s.snapshotPath(line)
	err = writeFile(path+temporary, s.options.Always, m.header(state), state)
	if err == nil {
		err = readsBack(path+temporary, m, state)
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
	return s.pruneSnapshots(m)
}

// markAt returns where a snapshot is of the log.
func (s *Store) markAt(line int64) (m mark, err error) {
	s.logMutex.Lock()
	defer s.logMutex.Unlock()
	if s.log == nil {
		return m, ErrClosed
	}
	if end := s.log.End().Line; line < 1 || line > end {
		return m, fmt.Errorf("store: a snapshot as of line %d of a log of %d", line, end)
	}
	m = mark{line: line, at: s.near(line - 1)}
	src, err := s.log.From(m.at, line-1)
	if err == nil {
		m.last, err = lastOf(src)
	}
	if err != nil {
		return m, fmt.Errorf("store: snapshot as of line %d: %w", line, err)
	}
	return m, nil
}

// mark is where a snapshot is of the log: after so many lines, the last of which ends with this checksum. To find that line,
// reading begins at a place before it.
type mark struct {
	line int64
	at   trace.Mark
	last string
}

// checksumDigits is how many digits a line's checksum has, before the end of the line.
const checksumDigits, lineEnd = 8, "\"}\n"

// lastOf returns the checksum that the first line of src ends with, as it stands there. It says whether a log is the one
// that a snapshot is of.
func lastOf(src io.ReadCloser) (string, error) {
	defer src.Close()
	line, err := bufio.NewReader(src).ReadBytes('\n')
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return "", err
	}
	body, ends := strings.CutSuffix(string(line), lineEnd)
	if !ends || len(body) < checksumDigits {
		return "", errors.New("the line before it does not end with a checksum")
	}
	return body[len(body)-checksumDigits:], nil
}

// header is the first line of a snapshot's file: where it is of the log, and a checksum over that and the state.
func (m mark) header(state []byte) []byte {
	text := fmt.Appendf(nil, snapshotFormat, m.line, m.at.Line, m.at.Offset, m.last, len(state))
	return fmt.Appendf(text, "%08x\n", crc32.Update(crc32.Checksum(text, castagnoli), castagnoli, state))
}

// snapshotFormat is how the header begins: the line, the place where reading begins in lines and bytes, the checksum of the
// line before, the length of the state.
const snapshotFormat = "headway snapshot 3 %d %d %d %s %d "

// errEarlier is what a snapshot of another version of the program is passed over with.
var errEarlier = errors.New("of another version of headway")

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
func readsBack(path string, m mark, state []byte) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if header := m.header(state); !bytes.HasPrefix(data, header) || !bytes.Equal(data[len(header):], state) {
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
	end := s.log.End()
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
		m, state, err := parseSnapshot(data)
		if err == nil && m.line != line {
			err = errDamaged
		}
		switch {
		case err != nil:
			return line, nil, fmt.Errorf("%w: %s is %w", port.ErrSnapshotDamaged, s.snapshotPath(line), err)
		case line > end.Line || m.at.Offset > end.Offset:
			return line, nil, fmt.Errorf("%w: the log has only %d lines: it has lost its end", port.ErrSnapshotDamaged, end.Line)
		}
		return line, state, nil
	}
	return 0, nil, nil
}

// parseSnapshot returns what a snapshot's file holds.
func parseSnapshot(data []byte) (m mark, state []byte, err error) {
	header, state, found := bytes.Cut(data, []byte{'\n'})
	length := 0
	if _, err := fmt.Sscanf(string(header), snapshotFormat, &m.line, &m.at.Line, &m.at.Offset, &m.last, &length); err != nil || !found {
		if found && bytes.HasPrefix(header, []byte("headway snapshot 2 ")) {
			return m, nil, errEarlier
		}
		return m, nil, errDamaged
	}
	if !bytes.Equal(data[:len(header)+1], m.header(state)) {
		return m, nil, errDamaged
	}
	return m, state, nil
}

// placed returns what the snapshots that there are say of the log, ascending.
func (s *Store) placed() (all []mark, err error) {
	lines, err := s.snapshots()
	if err != nil {
		return nil, err
	}
	for _, line := range lines {
		data, err := os.ReadFile(s.snapshotPath(line))
		if err != nil {
			return nil, fmt.Errorf("store: %w", err)
		}
		if m, _, err := parseSnapshot(data); err == nil && m.line == line {
			all = append(all, m)
		}
	}
	return all, nil
}

// fits reports whether a log is the one that a snapshot is of: the line before it ends as it says.
func (m mark) fits(log *trace.Log) bool {
	if m.at.Line >= m.line || m.line > log.End().Line {
		return false
	}
	src, err := log.From(m.at, m.line-1)
	if err != nil {
		return false
	}
	last, err := lastOf(src)
	return err == nil && last == m.last
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

// pruneSnapshots notes the mark of a snapshot that was written, deletes all but the newest snapshots that verify, and forgets
// their marks. Those ahead of the log are of a log that is gone, and go first.
func (s *Store) pruneSnapshots(written mark) error {
	lines, err := s.snapshots()
	if err != nil {
		return err
	}
	s.logMutex.Lock()
	end := s.log.End().Line
	s.logMutex.Unlock()
	good := slices.DeleteFunc(slices.Clone(lines), func(line int64) bool { return line > end || !s.verifies(line) })
	kept := good[max(len(good)-snapshotsKept, 0):]
	for _, line := range lines {
		if slices.Contains(kept, line) {
			continue
		}
		if err := os.Remove(s.snapshotPath(line)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("store: %w", err)
		}
	}
	s.logMutex.Lock()
	defer s.logMutex.Unlock()
	s.marks = slices.DeleteFunc(append(s.marks, written), func(m mark) bool { return !slices.Contains(kept, m.line) })
	return nil
}

// verifies reports whether a snapshot's file is what was written.
func (s *Store) verifies(line int64) bool {
	data, err := os.ReadFile(s.snapshotPath(line))
	if err != nil {
		return false
	}
	m, _, err := parseSnapshot(data)
	return err == nil && m.line == line
}
