package file

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/headway-rl/headway/loop/trace"
)

// Append adds lines to the event log with one write. When it returns without an
// error they survive the end of this process. Without room for them nothing of them is
// kept, the error wraps port.ErrNoSpace, and the same may be tried again. Any other
// error is final for the log.
func (s *Store) Append(lines [][]byte) error {
	s.logMutex.Lock()
	defer s.logMutex.Unlock()
	if s.logErr != nil {
		return s.logErr
	}
	chunk := joinLines(lines)
	if len(chunk) == 0 {
		return nil
	}
	if s.log.End().Line == 0 {
		if err := s.takeHeader(chunk); err != nil {
			return err
		}
	}
	switch err := s.log.Append(chunk, s.options.Always); {
	case noSpace(err):
		return full("the event log", err)
	case err != nil:
		s.logErr = fmt.Errorf("store: the event log takes no more: %w", err)
	}
	return s.logErr
}

func joinLines(lines [][]byte) []byte {
	if len(lines) == 1 {
		return lines[0]
	}
	return bytes.Join(lines, nil)
}

// takeHeader keeps what a log that begins with this chunk says of itself.
func (s *Store) takeHeader(chunk []byte) error {
	r, err := trace.NewReader(bytes.NewReader(chunk))
	if err != nil {
		return fmt.Errorf("store: a log begins with its header: %w", err)
	}
	s.header = r.Header
	return nil
}

// createLog begins a log that is packed.
func (s *Store) createLog() (err error) {
	if s.logFile, err = os.OpenFile(trace.Path(s.dir), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err == nil {
		s.log, err = trace.NewLog(s.logFile, true)
	}
	return err
}

// openLog reads the log's header and finds its end.
func (s *Store) openLog() error {
	path := trace.Path(s.dir)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	s.logFile = f
	r, err := trace.NewReader(f)
	if torn(err) {
		return fmt.Errorf("%s: %w: the run ended before it began; start it anew under another name", path, err)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	s.header = r.Header
	marks, err := s.placed()
	if err != nil {
		return err
	}
	if s.log, err = newestLog(f, marks); err != nil {
		return fmt.Errorf("store: %s: %w", path, err)
	}
	s.marks = slices.DeleteFunc(marks, func(m mark) bool { return !m.fits(s.log) })
	return nil
}

// newestLog opens the log from the newest snapshot that is of it, from its beginning where there is none.
func newestLog(f *os.File, marks []mark) (*trace.Log, error) {
	for _, m := range slices.Backward(marks) {
		if log, err := trace.OpenLog(f, true, m.at); err == nil && m.fits(log) {
			return log, nil
		}
	}
	return trace.OpenLog(f, true, trace.Mark{})
}

// near returns a place in the log where reading can begin, at or before a line.
func (s *Store) near(line int64) trace.Mark {
	at := trace.Mark{}
	if near := s.log.Near(); near.Line <= line {
		at = near
	}
	for _, m := range s.marks {
		if m.at.Line <= line && m.at.Line > at.Line {
			at = m.at
		}
	}
	return at
}

// ReadLog returns the log after its first line lines, as it is now, without what is
// being written.
func (s *Store) ReadLog(line int64) (io.ReadCloser, error) {
	s.logMutex.Lock()
	defer s.logMutex.Unlock()
	if s.log == nil {
		return nil, ErrClosed
	}
	if end := s.log.End().Line; line < 0 || line > end {
		return nil, fmt.Errorf("store: the log of %s has %d lines, asked for those after %d", s.dir, end, line)
	}
	r, err := s.log.From(s.near(line), line)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	return r, nil
}

func torn(err error) bool {
	var at *trace.Error
	return errors.As(err, &at) && at.Torn
}
