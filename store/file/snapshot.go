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
)

const (
	snapshotPrefix = "snapshot-"
	// snapshotsKept is how many snapshots stay: the newest, and one before it in
	// case the newest turns out to be damaged.
	snapshotsKept = 2
	temporary     = ".tmp"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Snapshot keeps a state of the loop as of the log's sequence number seq. It is
// written aside and renamed, so that it is there whole or not at all.
func (s *Store) Snapshot(seq int64, state []byte) error {
	s.logMutex.Lock()
	always := s.options.Always
	s.logMutex.Unlock()
	path := s.snapshotPath(seq)
	header := fmt.Sprintf("headway snapshot 1 %d %d %08x\n", seq, len(state), crc32.Checksum(state, castagnoli))
	err := writeFile(path+temporary, always, []byte(header), state)
	if err == nil {
		err = os.Rename(path+temporary, path)
	}
	if err == nil && always {
		err = syncDir(s.stateDir())
	}
	if err != nil {
		os.Remove(path + temporary)
		return fmt.Errorf("store: snapshot at event %d: %w", seq, err)
	}
	s.logMutex.Lock()
	s.seq = max(s.seq, seq)
	s.logMutex.Unlock()
	return s.pruneSnapshots()
}

func writeFile(path string, sync bool, parts ...[]byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
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

// Read returns the newest snapshot and its sequence number, nil if there is none.
// A snapshot that does not verify, or that is ahead of the log, is passed over:
// the log alone says as much.
func (s *Store) Read() (seq int64, state []byte, err error) {
	seqs, err := s.snapshots()
	if err != nil {
		return 0, nil, err
	}
	s.logMutex.Lock()
	known := s.seq
	s.logMutex.Unlock()
	for _, seq := range slices.Backward(seqs) {
		data, err := os.ReadFile(s.snapshotPath(seq))
		if err != nil {
			return 0, nil, fmt.Errorf("store: %w", err)
		}
		if state, ok := parseSnapshot(seq, data); ok && seq <= known {
			return seq, state, nil
		}
	}
	return 0, nil, nil
}

// parseSnapshot returns the state in a snapshot's file, if it verifies.
func parseSnapshot(seq int64, data []byte) (state []byte, ok bool) {
	line, state, found := bytes.Cut(data, []byte("\n"))
	if !found {
		return nil, false
	}
	want := fmt.Sprintf("headway snapshot 1 %d %d %08x", seq, len(state), crc32.Checksum(state, castagnoli))
	return state, string(line) == want
}

func (s *Store) snapshotPath(seq int64) string {
	return filepath.Join(s.stateDir(), fmt.Sprintf("%s%016d", snapshotPrefix, seq))
}

// snapshots lists the sequence numbers of all snapshots, ascending.
func (s *Store) snapshots() ([]int64, error) {
	names, err := os.ReadDir(s.stateDir())
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	var seqs []int64
	for _, entry := range names {
		digits, ok := strings.CutPrefix(entry.Name(), snapshotPrefix)
		if seq, err := strconv.ParseInt(digits, 10, 64); ok && err == nil {
			seqs = append(seqs, seq)
		}
	}
	slices.Sort(seqs)
	return seqs, nil
}

func (s *Store) pruneSnapshots() error {
	seqs, err := s.snapshots()
	if err != nil {
		return err
	}
	for len(seqs) > snapshotsKept {
		if err := os.Remove(s.snapshotPath(seqs[0])); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("store: %w", err)
		}
		seqs = seqs[1:]
	}
	return nil
}
