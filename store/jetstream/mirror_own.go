package jetstream

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/headway-rl/headway/loop/port"
)

// placeTries is how often a mirror is begun anew because the log gave up lines meanwhile: a
// writer that is deposed, and does not know it yet, may do so once its own file has them.
const placeTries = 3

// isPlaced reports whether the file at path is the one that is written. Another one's may
// have taken its place: of a writer that was stopped just before it renamed its own.
func (m *mirror) isPlaced() bool {
	m.mutex.Lock()
	placed := m.placed
	m.mutex.Unlock()
	if !placed {
		return false
	}
	mine, err := m.file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(m.path)
	placed = err == nil && os.SameFile(mine, there)
	m.mutex.Lock()
	m.placed = placed
	m.mutex.Unlock()
	return placed
}

// place makes a file of this writer's own of the one before, or of its own that lost its
// name, completes it from the log and renames it over path. It is ErrFenced where another
// process has taken the run over.
func (m *mirror) place() error {
	before, log, lines := m.file, m.log, m.lines
	name := m.path + "." + strconv.FormatUint(m.epoch, 10) + mirrorSuffix
	// Before anything is copied: a process that is cut off would copy again and again.
	if err := m.current(); err != nil {
		return err
	}
	err := port.ErrLogTrimmed
	for try := 0; try < placeTries && errors.Is(err, port.ErrLogTrimmed); try++ {
		if err = m.build(name, before); err != nil && m.file != before {
			m.file.Close()
		}
	}
	if err == nil {
		if err = m.name(name); err != nil {
			m.file.Close()
		}
	}
	if err != nil {
		os.Remove(name)
		m.file, m.log = before, log
		m.mutex.Lock()
		m.lines = lines
		m.mutex.Unlock()
		if errors.Is(err, port.ErrLogTrimmed) || isDamaged(err) {
			m.end(err)
			return nil
		}
		return fmt.Errorf("store: completing the log's mirror %s: %w", m.path, err)
	}
	if before != nil {
		before.Close()
	}
	m.mutex.Lock()
	m.placed = true
	m.mutex.Unlock()
	m.clean()
	return nil
}

// mirrorSuffix ends the names of files that are to become the mirror: PATH.EPOCH.tmp.
const mirrorSuffix = ".tmp"

// build makes m.file a copy under name of the file given, of that at path if it is nil, with
// the lines of the log that it lacks.
func (m *mirror) build(name string, from *os.File) error {
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if err := m.copyTo(file, from); err != nil {
		file.Close()
		return err
	}
	m.file = file
	if err := m.measure(); err != nil {
		return err
	}
	m.mutex.Lock()
	lines, offered := m.lines, m.offered
	m.mutex.Unlock()
	if lines == offered {
		return m.file.Sync()
	}
	if err := m.catchUp(); err != nil {
		return err
	}
	return m.file.Sync() // what it has, the log may give up
}

// copyTo copies the file given, or that at path if there is one, to the start of file.
func (m *mirror) copyTo(file, from *os.File) error {
	if from == nil {
		there, err := os.Open(m.path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		defer there.Close()
		from = there
	} else if _, err := from.Seek(0, io.SeekStart); err != nil {
		return err
	}
	_, err := io.Copy(file, from)
	return err
}

// name gives the file its place, unless this process writes the run no longer. One that is
// stopped after it has asked, and takes the place of its successor's file, is undone by that
// one: see isPlaced.
func (m *mirror) name(name string) error {
	if err := m.current(); err != nil {
		return err
	}
	return os.Rename(name, m.path)
}

// current is ErrFenced where the log has the epoch of a later writer.
func (m *mirror) current() error {
	_, _, epoch, err := m.store.tryLogEnd(m.store.ctx)
	if err == nil && epoch > m.epoch {
		return ErrFenced
	}
	return err
}

// clean removes what writers before left that did not come to rename theirs.
func (m *mirror) clean() {
	names, _ := filepath.Glob(filepath.Dir(m.path) + string(filepath.Separator) + "*" + mirrorSuffix)
	for _, name := range names {
		text, ok := strings.CutPrefix(strings.TrimSuffix(filepath.Base(name), mirrorSuffix), filepath.Base(m.path)+".")
		if epoch, err := strconv.ParseUint(text, 10, 64); ok && err == nil && epoch < m.epoch {
			os.Remove(name)
		}
	}
}
