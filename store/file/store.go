package file

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/headway-rl/headway/internal/private"
	"github.com/headway-rl/headway/internal/replace"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/store/lock"
)

// Defaults of Options.
const (
	// SegmentBytesDefault is the size at which a payload segment is closed and the next begun.
	SegmentBytesDefault = 8 << 20
	// PayloadBytesMaxDefault bounds all segments together.
	PayloadBytesMaxDefault = 16 << 30
)

// Options of a store. The zero value survives kill -9 and has the default sizes.
type Options struct {
	// Always waits for the disk on every write, so that a promised write survives a loss of power
	// too. It is slower by the disk's latency for every commit.
	Always bool
	// SegmentBytes closes a payload segment at that size; 0 means SegmentBytesDefault.
	SegmentBytes int64
	// PayloadBytesMax is the most that all payload segments and blobs may take on disk; PutSample
	// fails beyond it, PutBlob before (payload.BlobsMost). 0 means PayloadBytesMaxDefault.
	PayloadBytesMax int64
	// Logf is told of files that cannot be deleted, by several goroutines: they take room, and no more. Nil tells no one.
	Logf func(format string, args ...any)
}

// WithDefaults returns a copy in which every zero that stands for a default is replaced by it.
func (o Options) WithDefaults() Options {
	o.SegmentBytes = cmp.Or(o.SegmentBytes, SegmentBytesDefault)
	o.PayloadBytesMax = cmp.Or(o.PayloadBytesMax, PayloadBytesMaxDefault)
	if o.Logf == nil {
		o.Logf = func(string, ...any) {}
	}
	return o
}

// Validate reports sizes that cannot be.
func (o Options) Validate() error {
	if o.SegmentBytes < 0 || o.PayloadBytesMax < 0 {
		return fmt.Errorf("store: SegmentBytes is %d and PayloadBytesMax %d, want neither negative", o.SegmentBytes, o.PayloadBytesMax)
	}
	return nil
}

// ErrClosed is what a closed store answers.
var ErrClosed = errors.New("store: closed")

// Store is a run directory's event log, payloads and snapshots. Its methods are
// safe for concurrent use. After a failed write of the log it accepts no more of them: lines after a
// gap cannot be read.
type Store struct {
	dir     string
	options Options
	lock    *lock.Lock
	// mirroring keeps a control plane that mirrors its log into this directory out; nil where
	// none ever has.
	mirroring *lock.Lock

	snapshotMutex sync.Mutex // held while a snapshot is written, and taken before logMutex
	logMutex      sync.Mutex
	logFile       *os.File
	log           *trace.Log
	header        trace.Header // of a log that has lines
	logErr        error
	// marks are places in the log, of the snapshots that there are, ascending.
	marks []mark

	payloads *payloads
}

var (
	_ port.Store = (*Store)(nil)
	_ port.Blobs = (*Store)(nil)
)

const (
	stateDir = "state"
	lockName = "lock"
	// mirrorLockSuffix ends the name of the lock that a control plane (store/jetstream) holds for as long as it writes the trace.
	mirrorLockSuffix = ".lock"
)

// Create begins a run in dir, which is made if it is missing. It refuses a
// directory that has a trace, and overwrites nothing.
func Create(dir string, o Options) (*Store, error) {
	s, err := newStore(dir, o)
	if err != nil {
		return nil, err
	}
	err = s.createLog()
	if errors.Is(err, fs.ErrExist) {
		err = fmt.Errorf("store: %s holds a run already (%s): resume it, or choose another name", dir, filepath.Base(trace.Path(dir)))
	}
	if err == nil {
		s.payloads, err = openPayloads(s.stateDir(), s.options)
	}
	if err == nil && len(s.payloads.segments)+len(s.payloads.blobs.groups) > 0 {
		err = fmt.Errorf("store: %s has payloads of a run but no %s: choose another name, or delete it", s.stateDir(), trace.FileName)
	}
	if err == nil {
		err = s.syncDirs()
	}
	if err != nil {
		return nil, s.abandon(err)
	}
	return s, nil
}

// Open opens the run in dir to go on with it. Of the log it reads the header and the end after the
// newest snapshot: a recovery verifies the lines that it reads. It verifies all payloads, and cuts
// off the part that a process left torn at the end of them. The log's torn end goes with the first
// Append. Damage is an error that names file and place, and changes nothing.
func Open(dir string, o Options) (*Store, error) {
	if _, err := os.Stat(trace.Path(dir)); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("store: %s is not a run directory: it has no %s", dir, trace.FileName)
		}
		return nil, err
	}
	s, err := newStore(dir, o)
	if err != nil {
		return nil, err
	}
	if err := s.openLog(); err != nil {
		return nil, s.abandon(err)
	}
	if s.payloads, err = openPayloads(s.stateDir(), s.options); err != nil {
		return nil, s.abandon(err)
	}
	return s, nil
}

// OpenBlobs opens a directory for blobs alone, which is made if it is missing: it has no log. Blobs of a process
// before are there.
func OpenBlobs(dir string, o Options) (*Store, error) {
	s, err := newStore(dir, o)
	if err != nil {
		return nil, err
	}
	if s.payloads, err = openPayloads(s.stateDir(), s.options); err == nil {
		err = s.syncDirs()
	}
	if err != nil {
		return nil, s.abandon(err)
	}
	return s, nil
}

// newStore makes the directories and takes the lock.
func newStore(dir string, o Options) (*Store, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s := &Store{dir: dir, options: o.WithDefaults()}
	// A run has prompts and responses: its directory is its owner's alone, unless it was made before.
	if err := private.Make(dir); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	mirrorLock := trace.Path(dir) + mirrorLockSuffix
	_, err := os.Stat(mirrorLock)
	if err == nil {
		s.mirroring, err = lock.Take(mirrorLock, dir)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err = os.MkdirAll(s.stateDir(), 0o700); err != nil {
		err = fmt.Errorf("store: %w", err)
	} else {
		s.lock, err = lock.Take(filepath.Join(s.stateDir(), lockName), dir)
	}
	if err != nil {
		s.unlock()
		return nil, err
	}
	return s, nil
}

// abandon frees what a failed Create or Open holds and returns why it failed.
func (s *Store) abandon(err error) error {
	if s.logFile != nil {
		s.logFile.Close()
	}
	s.payloads.close()
	s.unlock()
	return err
}

// unlock lets others write the directory.
func (s *Store) unlock() {
	s.lock.Release()
	s.mirroring.Release()
}

func (s *Store) stateDir() string { return filepath.Join(s.dir, stateDir) }

// syncDirs makes new directory entries survive a loss of power.
func (s *Store) syncDirs() error {
	if !s.options.Always {
		return nil
	}
	return errors.Join(replace.Directory(s.dir), replace.Directory(s.stateDir()), replace.Directory(filepath.Dir(s.dir)))
}

// Dir returns the run directory.
func (s *Store) Dir() string { return s.dir }

// Header returns the header of the log; false for a created run's, which its first
// Append brings.
func (s *Store) Header() (trace.Header, bool) {
	s.logMutex.Lock()
	defer s.logMutex.Unlock()
	return s.header, s.log != nil && s.log.End().Line > 0
}

// SetAlways changes Options.Always from now on. It is for an opened run, whose own document says
// which it is and can be read only once it is open.
func (s *Store) SetAlways(always bool) {
	s.logMutex.Lock()
	defer s.logMutex.Unlock()
	s.payloads.mutex.Lock()
	defer s.payloads.mutex.Unlock()
	s.options.Always, s.payloads.options.Always = always, always
}

// Close flushes and closes. A second Close does nothing.
func (s *Store) Close() error {
	s.snapshotMutex.Lock()
	defer s.snapshotMutex.Unlock()
	s.logMutex.Lock()
	defer s.logMutex.Unlock()
	if errors.Is(s.logErr, ErrClosed) {
		return nil
	}
	err := errors.Join(s.closeLog(), s.payloads.close())
	s.log, s.logErr = nil, ErrClosed
	s.unlock()
	if err != nil {
		return fmt.Errorf("store: closing: %w", err)
	}
	return nil
}

func (s *Store) closeLog() error {
	if s.log == nil {
		return nil
	}
	var finished error
	if s.logErr == nil {
		finished = s.log.Finish()
	}
	if noSpace(finished) {
		finished = nil // every line is there
	}
	return errors.Join(finished, s.logFile.Sync(), s.logFile.Close())
}
