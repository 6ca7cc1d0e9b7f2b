package trace

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
)

// Mark is a place in a trace's file where reading can begin: so many lines and bytes are before it.
type Mark struct{ Line, Offset int64 }

// Log is a file that lines are appended to, plain or packed. One goroutine at a time uses it; a reader that From returns
// is for another one.
type Log struct {
	file *os.File
	pack *packer // nil of a plain file
	// end is after the last whole line. near is a place where reading can begin, before the line that ends there.
	end, near Mark
	// torn: the file has more than that, which a process before left.
	torn bool
	// frame is frameBytes, and less in tests.
	frame int
}

// NewLog returns the log of an empty file.
func NewLog(file *os.File, packed bool) (*Log, error) {
	l := &Log{file: file, frame: frameBytes}
	if !packed {
		return l, nil
	}
	var err error
	l.pack, err = newPacker()
	return l, err
}

// OpenLog returns the log of a file that has lines. It goes on after the last whole one, plain or packed as the file is.
// An empty file is packed or not as it is asked. OpenLog reads from a mark on, the zero Mark for all. It changes nothing: the
// first Append, or Cut, cuts off a torn end. Damage is an *Error.
func OpenLog(file *os.File, packed bool, from Mark) (*Log, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > 0 {
		begins := make([]byte, 1)
		if _, err := file.ReadAt(begins, 0); err != nil {
			return nil, err
		}
		packed = begins[0] == frameMagic[0]
	}
	l, err := NewLog(file, packed)
	if err != nil {
		return nil, err
	}
	l.end, l.near = from, from
	find := l.findPlain
	if packed {
		find = l.findPacked
	}
	err = find(io.NewSectionReader(file, from.Offset, info.Size()-from.Offset))
	l.torn = info.Size() > l.end.Offset
	if err == nil && l.torn && packed {
		if err = l.checkTorn(info.Size()); err != nil {
			err = &Error{Line: int(l.end.Line) + 1, Packed: true, Err: err}
		}
	}
	return l, err
}

var newline = []byte{'\n'}

// findPlain moves the end behind the last whole line.
func (l *Log) findPlain(file io.Reader) error {
	lines := bufio.NewReaderSize(file, 1<<16)
	for at := l.end; ; {
		part, err := lines.ReadSlice('\n')
		at.Offset += int64(len(part))
		switch {
		case err == nil:
			at.Line++
			l.advance(at)
		case errors.Is(err, io.EOF):
			return nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return err
		}
	}
}

// findPacked moves the end behind the last block that ends with a line. What is behind that is of an append that did not
// return.
func (l *Log) findPacked(file io.Reader) error {
	line, whole, full, near := l.end.Line, true, false, l.near
	text := NewText(file)
	if err := text.unpack(l.end.Offset); err != nil {
		return err
	}
	frames := text.frames
	for buf := make([]byte, blockBytesMax); ; {
		n, err := text.Read(buf) // the text of one block
		if n > 0 {
			if whole && frames.frame != near.Offset {
				near = Mark{line, frames.frame}
			}
			line += int64(bytes.Count(buf[:n], newline))
			full = n >= frameBytes // the encoder has no larger blocks
			if whole = buf[n-1] == '\n'; whole {
				l.end, l.near, l.pack.open = Mark{line, frames.at}, near, frames.inside
			}
		}
		switch {
		case err == nil:
		case !whole && !full && (errors.Is(err, io.EOF) || errors.Is(err, errTorn)): // only a full block is a part of an append
			return &Error{Line: int(line) + 1, Packed: true, Err: text.in(errors.New("damaged: the text ends in the middle of a line"))}
		case errors.Is(err, io.EOF) && whole && !frames.cut:
			l.end.Offset, l.pack.open = frames.at, false
			return nil
		case errors.Is(err, io.EOF), errors.Is(err, errTorn):
			return nil
		default:
			return &Error{Line: int(line) + 1, Packed: true, Err: err}
		}
	}
}

// advance moves the end. In a plain file reading can begin at any line, and the place near the end follows it.
func (l *Log) advance(end Mark) {
	if l.pack == nil && end.Offset-l.near.Offset > int64(l.frame) {
		l.near = l.end
	}
	l.end = end
}

// End returns how many whole lines and bytes the log has.
func (l *Log) End() Mark { return l.end }

// Near returns a place where reading can begin that is shortly before the last line.
func (l *Log) Near() Mark { return l.near }

// Append adds whole lines with one write. With sync it waits for the disk. After an error
// the file has what it had before.
func (l *Log) Append(text []byte, sync bool) error {
	if len(text) == 0 {
		return nil
	}
	if err := l.Cut(); err != nil {
		return err
	}
	var err error
	data, near := text, l.near
	if l.pack != nil {
		var begins int
		if data, begins, err = l.pack.append(text, l.frame); begins >= 0 {
			near = Mark{l.end.Line, l.end.Offset + int64(begins)}
		}
	}
	if err == nil {
		err = l.write(data, sync)
	}
	if err != nil {
		if l.pack != nil {
			l.pack.undo()
		}
		return err
	}
	l.near = near
	l.advance(Mark{l.end.Line + int64(bytes.Count(text, newline)), l.end.Offset + int64(len(data))})
	return nil
}

// write writes bytes behind the end, all of them or none. What cannot be cut off again is cut off by the next one.
func (l *Log) write(data []byte, sync bool) error {
	_, err := l.file.WriteAt(data, l.end.Offset)
	if err == nil && sync {
		err = l.file.Sync() // what failed to reach the disk may be gone from memory as well
	}
	if err != nil {
		l.torn = true
		_ = l.Cut()
	}
	return err
}

// Cut cuts off what a write that was not completed left behind the end.
func (l *Log) Cut() error {
	if !l.torn {
		return nil
	}
	err := l.file.Truncate(l.end.Offset)
	l.torn = err != nil
	return err
}

// Finish ends the frame at the end of a packed file: standard tools read a frame without an end, and complain. The log may
// go on.
func (l *Log) Finish() error {
	if l.pack == nil || !l.pack.open {
		return nil
	}
	err := errors.Join(l.Cut(), l.write(frameEnd, false))
	if err == nil {
		l.end.Offset += int64(len(frameEnd))
		l.pack.open, l.pack.live = false, false
	}
	return err
}

// From returns the text after the first line lines as it is now. The mark is a place at or before that line.
func (l *Log) From(mark Mark, line int64) (io.ReadCloser, error) {
	file, err := os.Open(l.file.Name())
	if err != nil {
		return nil, err
	}
	text := NewText(io.NewSectionReader(file, mark.Offset, l.end.Offset-mark.Offset))
	if text.began = true; l.pack != nil {
		err = text.unpack(mark.Offset)
	}
	lines := bufio.NewReaderSize(text, 1<<16)
	for at := mark.Line; at < line && err == nil; {
		if _, err = lines.ReadSlice('\n'); err == nil {
			at++
		} else if errors.Is(err, bufio.ErrBufferFull) {
			err = nil
		}
	}
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, errors.Join(err, file.Close())
	}
	return struct {
		io.Reader
		io.Closer
	}{lines, file}, nil
}
