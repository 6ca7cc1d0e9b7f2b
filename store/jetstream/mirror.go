package jetstream

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/store/lock"
)

const (
	// mirrorBuffer is how much may wait to be written to the mirror. What does not fit is
	// read from the log again: an append never waits for the mirror.
	mirrorBuffer = 16 << 20
	// mirrorRetry is after how long a mirror that could not be written is tried again.
	mirrorRetry = time.Second
	// mirrorEvery is for how long lines gather before they are written to the mirror.
	mirrorEvery = 100 * time.Millisecond
	// mirrorEnd is how long a mirror that is closed may gain no line, as where NATS does not answer.
	mirrorEnd = 10 * time.Second
	// mirrorMuch is how much is written at once.
	mirrorMuch = 64 << 10
)

// mirror writes the log's lines to a file as well. A nil mirror does nothing.
//
// The file of an embedded server's run is locked, and goes on where it ended. With a cluster
// the writer before may be alive, and may hold the file open: it hangs, or is cut off. There
// every writer makes a file of its own and renames it over the one before, so that what a
// deposed one still writes goes into a file without a name.
type mirror struct {
	store    *Store
	path     string
	epoch    uint64        // the writer's
	own      bool          // every writer has a file of its own
	patience time.Duration // see mirrorEnd
	file     *os.File
	log      *trace.Log // of the file
	lock     *lock.Lock

	mutex   sync.Mutex
	lines   int64  // in the file
	offered int64  // appended to the log
	waiting []byte // offered, and not in the file, unless behind
	behind  bool   // the file has to be completed from the log
	placed  bool   // the file is the one at path
	dead    bool   // the file is written no more
	ending  bool
	wake    chan struct{}
	hurry   chan struct{} // does not let lines gather
	done    chan struct{}
}

// openMirror opens the file, cuts a torn last line and completes it from the log. One that is damaged is written no more.
func openMirror(s *Store) (*mirror, error) {
	if s.options.TracePath == "" {
		return nil, nil
	}
	m := &mirror{store: s, path: s.options.TracePath, epoch: s.events.epoch, own: s.embedded == nil, patience: mirrorEnd,
		offered: s.events.lines(), wake: make(chan struct{}, 1), hurry: make(chan struct{}, 1), done: make(chan struct{})}
	var err error
	if m.own {
		err = m.place()
	} else {
		err = m.open()
	}
	if m.own && err != nil && !errors.Is(err, errForeignMirror) {
		// The run goes on without it, as it does where the mirror cannot be written later on.
		s.options.Logf("store: the mirror %s: %v; it is completed when it can be written", m.path, err)
		m.behind, err = true, nil
		poke(m.wake)
	}
	if err != nil {
		m.free()
		return nil, err
	}
	s.wait.Add(2)
	go m.verify(m.lines)
	go m.run()
	return m, nil
}

// verify reads the mirror's first lines lines, and says where one was changed. Nothing waits for it: the run needs the
// log, and whoever reads the mirror later is to know before a backup is gone.
func (m *mirror) verify(lines int64) {
	defer m.store.wait.Done()
	file, err := os.Open(m.path)
	if err != nil {
		return // there is none yet
	}
	defer file.Close()
	r, err := trace.NewReader(file)
	for err == nil && r.Position().Line < lines && m.store.ctx.Err() == nil {
		err = r.Skip()
	}
	if _, damaged := errors.AsType[*trace.Error](err); damaged && lines > 0 {
		m.store.options.Logf("store: the mirror %s is damaged: %v. Commands that read it end there; the run goes on from its log", m.path, err)
	}
}

// open locks and opens the file at path, which no other process writes, and completes it.
func (m *mirror) open() (err error) {
	if m.lock, err = lock.Take(m.path+".lock", m.path); err != nil {
		return err
	}
	if m.file, err = os.OpenFile(m.path, os.O_RDWR|os.O_CREATE, 0o600); err == nil {
		err = m.measure()
	}
	if isDamaged(err) {
		m.end(err)
		return nil
	}
	if err == nil {
		err = m.complete()
	}
	if err != nil {
		return fmt.Errorf("store: completing the log's mirror %s: %w", m.path, err)
	}
	m.placed = true
	return nil
}

// measure finds the file's last line and cuts what follows it. Of a file that is not the log's it changes nothing.
func (m *mirror) measure() error {
	log, err := trace.OpenLog(m.file, trace.Packed(m.path), trace.Mark{})
	if err != nil {
		return err
	}
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if lines := log.End().Line; lines > m.offered {
		return fmt.Errorf("it has %d lines and the log %d: %w", lines, m.offered, errForeignMirror)
	}
	m.log, m.lines = log, log.End().Line
	return log.Cut()
}

// errForeignMirror says that the file at path is not a beginning of the log.
var errForeignMirror = fmt.Errorf("it is another run's, or the log lost its end. Begin under another name, restore the log, or move the file away: %w", ErrLogDamaged)

// isDamaged says that the file is a mirror whose middle is damaged. It is left as it is, for what can still be read of it,
// and the run goes on: its log has what the run needs.
func isDamaged(err error) bool {
	at, is := errors.AsType[*trace.Error](err)
	return is && at.Line > 1 && !at.Torn
}

// complete brings the file up to the log. Where the log has given up lines that the file
// lacks, the file stays as it is from then on.
func (m *mirror) complete() error {
	m.mutex.Lock()
	lines, offered := m.lines, m.offered
	m.mutex.Unlock()
	if lines == offered {
		return nil
	}
	err := m.catchUp()
	if errors.Is(err, port.ErrLogTrimmed) {
		m.end(err)
		return nil
	}
	return err
}

// end says that the file is written no more, and why.
func (m *mirror) end(why error) {
	m.store.options.Logf("store: the mirror %s is not completed: %v", m.path, why)
	m.mutex.Lock()
	m.dead, m.waiting = true, nil
	m.mutex.Unlock()
}

// catchUp copies lines from the log to the file.
func (m *mirror) catchUp() error {
	r, err := m.store.readFrom(m.store.ctx, m.lines, 0)
	if err != nil {
		return err
	}
	defer r.Close()
	var part []byte // of a line, which goes on in the next message
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
		part = append(part, text...)
		whole := bytes.LastIndexByte(part, '\n') + 1
		if err := m.write(part[:whole]); err != nil {
			return err
		}
		part = append(part[:0], part[whole:]...)
	}
}

// write appends whole lines to the file, all or none.
func (m *mirror) write(text []byte) error {
	if err := m.log.Append(text, m.store.options.Always); err != nil {
		return err
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
	much := len(m.waiting) > mirrorMuch
	m.mutex.Unlock()
	poke(m.wake)
	if much {
		poke(m.hurry)
	}
}

// poke wakes whoever waits at a channel with room for one, now or when it looks.
func poke(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default: // it has been poked already
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
		m.gather()
		m.mutex.Lock()
		ending := m.ending
		text := m.waiting
		m.waiting = spare[:0]
		m.mutex.Unlock()
		spare = text
		err := m.put(text)
		switch {
		case errors.Is(err, ErrFenced):
			m.end(err)
			if l := m.store.lease.Load(); l != nil {
				l.fence()
			}
		case errors.Is(err, port.ErrLogTrimmed):
			m.end(err)
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
			poke(m.wake)
		}
		failing = err != nil
		m.mutex.Lock()
		finished := m.ending && (m.dead || m.placed && m.lines >= m.offered)
		m.mutex.Unlock()
		if finished {
			return
		}
		if ending {
			poke(m.wake)
		}
	}
}

// gather waits for more lines, which are packed and written together, unless there are many or the mirror is closed.
func (m *mirror) gather() {
	m.mutex.Lock()
	hurries := m.ending || m.behind
	m.mutex.Unlock()
	if hurries {
		return
	}
	timer := time.NewTimer(mirrorEvery)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-m.hurry:
	case <-m.store.ctx.Done():
	}
}

// put writes what was offered last, or what the file lacks, into the file at path.
func (m *mirror) put(text []byte) error {
	m.mutex.Lock()
	behind, dead := m.behind, m.dead
	m.mutex.Unlock()
	switch {
	case dead:
		return nil
	case m.own && !m.isPlaced():
		m.mutex.Lock()
		m.behind, m.waiting = true, nil // what was offered is in the log
		m.mutex.Unlock()
		return m.place()
	case behind:
		return m.catchUp()
	}
	return m.write(text)
}

// covered returns how many of the first line lines the mirror has, or needs no more.
func (m *mirror) covered(line int64) int64 {
	if m == nil {
		return line
	}
	m.mutex.Lock()
	defer m.mutex.Unlock()
	switch {
	case m.dead:
		return line
	case !m.placed:
		return 0
	}
	return min(line, m.lines)
}

// awaitEnd waits until the file is complete, or gains no line any more. Then it ends what waits for NATS.
func (m *mirror) awaitEnd() {
	for before := int64(-1); ; {
		m.mutex.Lock()
		lines := m.lines
		m.mutex.Unlock()
		if lines == before {
			m.store.cancel()
			<-m.done
			return
		}
		before = lines
		timer := time.NewTimer(m.patience)
		select {
		case <-m.done:
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// close completes the file and closes it. What NATS does not give for long stays missing.
func (m *mirror) close() error {
	if m == nil {
		return nil
	}
	m.mutex.Lock()
	m.ending = true
	m.mutex.Unlock()
	poke(m.hurry)
	poke(m.wake)
	m.awaitEnd()
	defer m.free()
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.log != nil && !m.dead {
		_ = m.log.Finish() // the lines are there without it
	}
	if !m.dead && (m.lines < m.offered || !m.placed) {
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
