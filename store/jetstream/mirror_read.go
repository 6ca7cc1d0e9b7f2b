package jetstream

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"

	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/loop/trace"
)

// readMirrored returns the log's lines after the first line lines, up to the line end: those that the log has
// given up from the mirror, the rest from the log. The mirror's first line has to be this run's.
func (s *Store) readMirrored(line, end int64, last uint64) (io.ReadCloser, error) {
	m := s.mirror
	if m == nil {
		return nil, fmt.Errorf("%w, and the run has no mirror (store.trace: none)", port.ErrLogTrimmed)
	}
	m.mutex.Lock()
	has, whole := min(m.lines, end), m.placed && !m.dead
	m.mutex.Unlock()
	if !whole || has <= line {
		return nil, fmt.Errorf("%w, and the mirror %s does not have them either", port.ErrLogTrimmed, m.path)
	}
	file, err := os.Open(m.path)
	if err != nil {
		return nil, fmt.Errorf("%w, and the mirror: %w", port.ErrLogTrimmed, err)
	}
	r := &mirrorReader{file: file, lines: bufio.NewReaderSize(trace.NewText(file), 1<<20), left: has}
	if err = s.checkMirror(r); err == nil {
		err = r.skip(line)
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("%w, and the mirror %s: %w", port.ErrLogTrimmed, m.path, err)
	}
	if has == end {
		return r, nil
	}
	rest, err := s.readFrom(s.ctx, has, last)
	if err != nil {
		file.Close()
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(r, rest), closers{r, rest}}, nil
}

// checkMirror compares the mirror's first line with the run's header.
func (s *Store) checkMirror(r *mirrorReader) error {
	header, err := s.readChunks(s.ctx, s.names.head, s.names.header)
	if err != nil {
		return fmt.Errorf("the run's header: %w", err)
	}
	begins, err := r.lines.Peek(min(len(header), r.lines.Size()))
	if err != nil || !bytes.HasPrefix(header, begins) {
		return errForeignMirror
	}
	return nil
}

// mirrorReader reads so many lines of the mirror, which is written meanwhile.
type mirrorReader struct {
	file  *os.File
	lines *bufio.Reader
	left  int64
	rest  []byte
}

// skip leaves out the first n lines.
func (r *mirrorReader) skip(n int64) error {
	for until := r.left - n; r.left > until; {
		if err := r.next(); err != nil {
			return err
		}
	}
	r.rest = nil
	return nil
}

// next reads a line, or a piece of one.
func (r *mirrorReader) next() error {
	part, err := r.lines.ReadSlice('\n')
	r.rest = part
	switch {
	case err == nil:
		r.left--
	case err == io.EOF:
		return fmt.Errorf("it ends %d lines early: %w", r.left, io.ErrUnexpectedEOF)
	case err != bufio.ErrBufferFull:
		return err
	}
	return nil
}

// Read implements io.Reader.
func (r *mirrorReader) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		if r.left == 0 {
			return 0, io.EOF
		}
		if err := r.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// Close closes the file.
func (r *mirrorReader) Close() error { return r.file.Close() }

// closers closes several.
type closers []io.Closer

// Close closes all, and returns the first error.
func (c closers) Close() (err error) {
	for _, x := range c {
		if e := x.Close(); err == nil {
			err = e
		}
	}
	return err
}
