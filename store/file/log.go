package file

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"

	"github.com/headway-rl/headway/loop/trace"
)

// mark is a place between two lines of the log: how many lines and bytes are before it.
type mark struct{ line, offset int64 }

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
	if s.end.line == 0 {
		if err := s.takeHeader(chunk); err != nil {
			return err
		}
	}
	if err := s.write(chunk); err != nil {
		return err
	}
	s.end.line += int64(bytes.Count(chunk, newline))
	s.end.offset += int64(len(chunk))
	return nil
}

// write appends a chunk to the log's file, whole or not at all.
func (s *Store) write(chunk []byte) error {
	err := s.cutTorn()
	if err == nil {
		_, err = s.log.Write(chunk)
		// A half-written line would be found and cut by the next process; it is cut here, so
		// that this one can go on.
		if noSpace(err) && s.log.Truncate(s.end.offset) == nil {
			return full("the event log", err)
		}
	}
	if err == nil && s.options.Always {
		err = s.log.Sync() // what failed to reach the disk may be gone from memory as well
	}
	if err != nil {
		s.logErr = fmt.Errorf("store: the event log takes no more: %w", err)
		_ = s.log.Truncate(s.end.offset)
		return s.logErr
	}
	return nil
}

var newline = []byte{'\n'}

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

// cutTorn cuts what a process before left behind the last complete line.
func (s *Store) cutTorn() error {
	if !s.torn {
		return nil
	}
	if err := s.log.Truncate(s.end.offset); err != nil {
		return err
	}
	s.torn = false
	return nil
}

// openLog reads the log's header and finds its end.
func (s *Store) openLog() error {
	path := filepath.Join(s.dir, trace.FileName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	s.log = f
	r, err := trace.NewReader(bufio.NewReader(f))
	if torn(err) {
		return fmt.Errorf("%s: %w: the run ended before it began; start it anew under another name", path, err)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	s.header = r.Header
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if err := s.findMarks(info.Size()); err != nil {
		return err
	}
	if s.end, err = s.seek(math.MaxInt64, info.Size()); err != nil {
		return fmt.Errorf("store: %s: %w", path, err)
	}
	s.torn = info.Size() > s.end.offset
	return nil
}

// seek returns the place before which there are so many lines, or the last one
// where there are fewer. It looks at the first size bytes, from the nearest mark on.
func (s *Store) seek(line, size int64) (mark, error) {
	if line == s.end.line && s.end.offset == size {
		return s.end, nil
	}
	var at mark
	for _, m := range s.marks {
		if m.line <= line && m.line > at.line {
			at = m
		}
	}
	next, buf := at.offset, make([]byte, 1<<16)
	for at.line < line && next < size {
		n, err := s.log.ReadAt(buf[:min(int64(len(buf)), size-next)], next)
		if err != nil && !errors.Is(err, io.EOF) || n == 0 {
			return at, errors.Join(err, io.ErrUnexpectedEOF)
		}
		for part := buf[:n]; at.line < line; at.line++ {
			i := bytes.IndexByte(part, '\n')
			if i < 0 {
				break
			}
			part = part[i+1:]
			at.offset = next + int64(n-len(part))
		}
		next += int64(n)
	}
	return at, nil
}

// ReadLog returns the log after its first line lines, as it is now, without what is
// being written.
func (s *Store) ReadLog(line int64) (io.ReadCloser, error) {
	s.logMutex.Lock()
	defer s.logMutex.Unlock()
	if s.log == nil {
		return nil, ErrClosed
	}
	if line < 0 || line > s.end.line {
		return nil, fmt.Errorf("store: the log of %s has %d lines, asked for those after %d", s.dir, s.end.line, line)
	}
	from, err := s.seek(line, s.end.offset)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	f, err := os.Open(s.log.Name())
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	return struct {
		io.Reader
		io.Closer
	}{io.NewSectionReader(f, from.offset, s.end.offset-from.offset), f}, nil
}

func torn(err error) bool {
	var at *trace.Error
	return errors.As(err, &at) && at.Torn
}
