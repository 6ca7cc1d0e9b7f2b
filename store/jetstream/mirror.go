package jetstream

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/headway-rl/headway/live"
	"github.com/headway-rl/headway/store/lock"
)

const (
	// mirrorBuffer is how much may wait to be written to the mirror. What does not fit is
	// read from the log again: an append never waits for the mirror.
	mirrorBuffer = 16 << 20
	// mirrorRetry is after how long a mirror that could not be written is tried again.
	mirrorRetry = time.Second
)

// mirror writes the log's lines to a file as well. A nil mirror does nothing.
type mirror struct {
	store *Store
	path  string
	file  *os.File
	lock  *lock.Lock

	mutex   sync.Mutex
	lines   int64  // in the file
	offered int64  // appended to the log
	waiting []byte // offered, and not in the file, unless behind
	behind  bool   // the file has to be completed from the log
	dead    bool   // and cannot be
	ending  bool
	wake    chan struct{}
	done    chan struct{}
}

// openMirror opens the file, cuts a torn last line and completes it from the log.
func openMirror(s *Store) (*mirror, error) {
	if s.options.TracePath == "" {
		return nil, nil
	}
	m := &mirror{store: s, path: s.options.TracePath, offered: s.events.lines(), wake: make(chan struct{}, 1), done: make(chan struct{})}
	var err error
	if m.lock, err = lock.Take(m.path+".lock", m.path); err != nil {
		return nil, err
	}
	if m.file, err = os.OpenFile(m.path, os.O_RDWR|os.O_CREATE, 0o644); err == nil {
		err = m.measure()
	}
	if err != nil {
		m.free()
		return nil, fmt.Errorf("store: the log's mirror: %w", err)
	}
	if err := m.complete(); err != nil {
		m.free()
		return nil, fmt.Errorf("store: completing the log's mirror %s: %w", m.path, err)
	}
	s.wait.Add(1)
	go m.run()
	return m, nil
}

// measure counts the file's lines and cuts what follows the last.
func (m *mirror) measure() error {
	r := bufio.NewReaderSize(m.file, 1<<20)
	var end, at int64
	for {
		part, err := r.ReadSlice('\n')
		at += int64(len(part))
		switch {
		case err == nil:
			m.lines++
			end = at
		case errors.Is(err, io.EOF):
			if err := m.file.Truncate(end); err != nil {
				return err
			}
			_, err := m.file.Seek(end, io.SeekStart)
			return err
		case !errors.Is(err, bufio.ErrBufferFull):
			return err
		}
	}
}

// complete brings the file up to the log. Where the log has given up lines that the file
// lacks, the file stays as it is from then on.
func (m *mirror) complete() error {
	if m.lines > m.offered {
		return fmt.Errorf("it has %d lines and the log %d: it is another run's, or the log lost its end; move it away", m.lines, m.offered)
	}
	for m.lines < m.offered {
		err := m.catchUp()
		if errors.Is(err, live.ErrLogTrimmed) {
			m.store.options.Logf("store: the mirror %s ends with line %d and is not completed: %v", m.path, m.lines, err)
			m.dead = true
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// catchUp copies lines from the log to the file.
func (m *mirror) catchUp() error {
	r, err := m.store.readFrom(m.store.ctx, m.lines, 0)
	if err != nil {
		return err
	}
	defer r.Close()
	for {
		m.mutex.Lock()
		caughtUp := m.lines >= m.offered
		if caughtUp {
			m.behind = false
		}
		m.mutex.Unlock()
		if caughtUp {
			return nil
		}
		text, err := r.message()
		if err != nil {
			return err
		}
		if err := m.write(text); err != nil {
			return err
		}
	}
}

// write appends whole lines to the file, all or none.
func (m *mirror) write(text []byte) error {
	if len(text) == 0 {
		return nil
	}
	at, err := m.file.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	_, err = m.file.Write(text)
	if err == nil && m.store.options.Always {
		err = m.file.Sync()
	}
	if err != nil {
		_, back := m.file.Seek(at, io.SeekStart)
		return errors.Join(err, m.file.Truncate(at), back)
	}
	m.mutex.Lock()
	m.lines += int64(bytes.Count(text, newline))
	m.mutex.Unlock()
	return nil
}

// offer hands over what was appended to the log. It never waits.
func (m *mirror) offer(first int64, text []byte) {
	if m == nil {
		return
	}
	m.mutex.Lock()
	m.offered = first - 1 + int64(bytes.Count(text, newline))
	whole := bytes.HasSuffix(text, newline)
	switch {
	case m.behind || m.dead:
	case !whole || len(m.waiting) > 0 && m.waiting[len(m.waiting)-1] != '\n' || len(m.waiting)+len(text) > mirrorBuffer:
		m.behind, m.waiting = true, nil
	default:
		m.waiting = append(m.waiting, text...)
	}
	m.mutex.Unlock()
	m.poke()
}

func (m *mirror) poke() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// run writes what is offered until the mirror is closed.
func (m *mirror) run() {
	defer m.store.wait.Done()
	defer close(m.done)
	var spare []byte
	failing := false
	for {
		select {
		case <-m.wake:
		case <-m.store.ctx.Done():
			return
		}
		m.mutex.Lock()
		behind, dead, ending := m.behind, m.dead, m.ending
		text := m.waiting
		m.waiting = spare[:0]
		m.mutex.Unlock()
		spare = text
		err := error(nil)
		if behind && !dead {
			err = m.catchUp()
		} else if !dead {
			err = m.write(text)
		}
		switch {
		case errors.Is(err, live.ErrLogTrimmed):
			m.store.options.Logf("store: the mirror %s is not completed: %v", m.path, err)
			m.mutex.Lock()
			m.dead = true
			m.mutex.Unlock()
		case err != nil:
			if !failing {
				m.store.options.Logf("store: the mirror %s: %v; it is completed when it can be written again", m.path, err)
			}
			m.mutex.Lock()
			m.behind, m.waiting = true, nil
			m.mutex.Unlock()
			if ending || !m.store.pause(m.store.ctx, mirrorRetry) {
				return
			}
			m.poke()
		}
		failing = err != nil
		m.mutex.Lock()
		finished := m.ending && (m.dead || m.lines >= m.offered)
		m.mutex.Unlock()
		if finished {
			return
		}
		if ending {
			m.poke()
		}
	}
}

// covered returns how many of the first line lines the mirror has, or needs no more.
func (m *mirror) covered(line int64) int64 {
	if m == nil {
		return line
	}
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.dead {
		return line
	}
	return min(line, m.lines)
}

// close completes the file and closes it.
func (m *mirror) close() error {
	if m == nil {
		return nil
	}
	m.mutex.Lock()
	m.ending = true
	m.mutex.Unlock()
	m.poke()
	<-m.done
	defer m.free()
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if !m.dead && m.lines < m.offered {
		return fmt.Errorf("store: the mirror %s has %d of the log's %d lines; it is completed when the run is opened again", m.path, m.lines, m.offered)
	}
	return nil
}

func (m *mirror) free() {
	if m.file != nil {
		m.file.Close()
	}
	m.lock.Release()
}
