package trace

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strconv"
	"strings"
)

// lineBytesMax bounds a line, so that a file that is no trace cannot exhaust memory.
const lineBytesMax = 16 << 20

// Error says where a trace cannot be read and why.
type Error struct {
	// Line counts from 1; Offset is where that line begins, in bytes.
	Line   int
	Offset int64
	// Torn: the file ends in the middle of this line, as after a sudden end of the writer.
	Torn bool
	// Packed: the file is packed, and Offset counts the bytes of its text.
	Packed bool
	Err    error
}

func (e *Error) Error() string {
	if e.Packed {
		return fmt.Sprintf("trace: line %d: %v", e.Line, e.Err)
	}
	return fmt.Sprintf("trace: line %d (byte %d): %v", e.Line, e.Offset, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// ErrChecksum is what a changed, missing or repeated line is found by.
var ErrChecksum = errors.New("checksum mismatch: this line, or one before it, was changed, lost or repeated")

// A file that cannot be the trace of a run is found by its beginning.
var (
	// ErrNoTrace: it does not begin as any trace does.
	ErrNoTrace = errors.New("this is no Headway trace: its first line is no header")
	// ErrEmpty: there is nothing in it, as where a run ended before its first step.
	ErrEmpty = errors.New("the trace is empty, expected a header")
)

// Begins is the text that every trace begins with, in every version.
const Begins = `{"n":0,"note":"` + NoteHeader + `"`

// errTorn is wrapped in an Error with Torn set.
var errTorn = errors.New("the trace ends in the middle of this line")

// Reader reads a trace line by line and verifies every checksum.
type Reader struct {
	text   *Text
	src    *bufio.Reader // of the text
	at     Position      // of the next line
	offset int64
	// Header of the trace.
	Header Header
	buf    []byte
	tail   []byte
}

// NewReader reads the header of a trace, plain or packed. It refuses what is not a trace, and a trace of another format.
func NewReader(src io.Reader) (*Reader, error) {
	r := newReader(src)
	if begins, _ := r.src.Peek(len(Begins)); !strings.HasPrefix(Begins, string(begins)) {
		return nil, &Error{Line: 1, Err: ErrNoTrace} // of what cannot be read nothing is there, and Next says why
	}
	rec, err := r.Next()
	if errors.Is(err, io.EOF) {
		return nil, &Error{Line: 1, Err: ErrEmpty}
	}
	if err != nil {
		return nil, err
	}
	if rec.Note != NoteHeader {
		return nil, &Error{Line: 1, Err: ErrNoTrace}
	}
	if err := json.Unmarshal(rec.Data, &r.Header); err != nil {
		return nil, &Error{Line: 1, Err: fmt.Errorf("unreadable header: %w", err)}
	}
	if r.Header.Format != Format {
		return nil, &Error{Line: 1, Err: fmt.Errorf("trace format %d, this program reads %d: use the version of headway that wrote it (%s)", r.Header.Format, Format, r.Header.Program)}
	}
	return r, nil
}

func newReader(src io.Reader) *Reader {
	text := NewText(src)
	return &Reader{text: text, src: bufio.NewReaderSize(text, 1<<16)}
}

// NewReaderAt reads a trace from a position on: src begins with the line after it,
// h is what the trace begins with. A line that does not follow from what is before
// the position, as its Sum tells, is ErrChecksum. Offsets count from the position.
func NewReaderAt(src io.Reader, at Position, h Header) *Reader {
	r := newReader(src)
	r.at, r.Header = at, h
	return r
}

// Next returns the next record, io.EOF after the last complete line, or an *Error.
func (r *Reader) Next() (Record, error) {
	body, sum, err := r.verified()
	if err != nil {
		return Record{}, err
	}
	rec, err := parseLine(body)
	if err == nil && rec.Event != nil && rec.Seq != r.at.Seq+1 && r.at.Seq != unknownSeq {
		err = fmt.Errorf("event %d follows event %d", rec.Seq, r.at.Seq)
	}
	if err != nil {
		return Record{}, r.here(r.text.in(err))
	}
	r.passed(body, sum)
	rec.Line = int(r.at.Line)
	if rec.Event != nil {
		r.at.Seq = rec.Seq
	}
	return rec, nil
}

// unknownSeq is the event of a position that one line alone tells: the next event says its number.
const unknownSeq = -1

// After returns the position behind a line of a number. Of the events before it the line alone does not tell.
func After(line []byte, number int64) (Position, error) {
	body, found := bytes.CutSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte(`"}`))
	sum := uint64(0)
	_, digits, cut := bytes.Cut(body[max(0, len(body)-len(crcKey)-8):], []byte(crcKey))
	err := errors.New("not a trace line: it does not end with a checksum")
	if found && cut && len(digits) == 8 {
		sum, err = strconv.ParseUint(string(digits), 16, 32)
	}
	return Position{Line: number, Seq: unknownSeq, Sum: uint32(sum)}, err
}

// ParseEvent reads the line of an event that stands alone, as the first of an Encoder.
func ParseEvent(line []byte) (*Event, error) {
	body, _ := bytes.CutSuffix(line, []byte("\n"))
	end := len(body) - crcTail
	if end < 1 || !bytes.Equal(body[end:], bytes.TrimSuffix(appendChecksum(nil, crc32.Checksum(body[:end], castagnoli)), []byte("\n"))) {
		return nil, ErrChecksum
	}
	rec, err := parseLine(body[:end])
	if err == nil && rec.Event == nil {
		err = errors.New("not the line of an event")
	}
	return rec.Event, err
}

// Skip verifies the next line's checksum and reads nothing of it. It is for those who look for damage alone: the
// position's number of an event stays.
func (r *Reader) Skip() error {
	body, sum, err := r.verified()
	if err == nil {
		r.passed(body, sum)
	}
	return err
}

// verified returns the next line without its end, and the checksum that the line rightly has.
func (r *Reader) verified() (body []byte, sum uint32, err error) {
	line, err := r.readLine()
	if err != nil {
		return nil, 0, err
	}
	end := len(line) - 1 - crcTail
	if end < 1 || !bytes.HasPrefix(line[end:], []byte(crcKey)) {
		return nil, 0, r.here(r.text.in(errors.New("not a trace line: it does not end with a checksum")))
	}
	sum = crc32.Update(r.at.Sum, castagnoli, line[:end])
	r.tail = appendChecksum(r.tail[:0], sum)
	if !bytes.Equal(line[end:], r.tail) {
		return nil, 0, r.here(r.text.in(ErrChecksum))
	}
	return line[:end], sum, nil
}

// passed moves behind a line.
func (r *Reader) passed(body []byte, sum uint32) {
	r.at.Line++
	r.at.Sum = sum
	r.offset += int64(len(body) + crcTail + 1)
}

func (r *Reader) readLine() ([]byte, error) {
	r.buf = r.buf[:0]
	for {
		part, err := r.src.ReadSlice('\n')
		r.buf = append(r.buf, part...)
		switch {
		case err == nil:
			return r.buf, nil
		case errors.Is(err, bufio.ErrBufferFull) && len(r.buf) < lineBytesMax:
			continue
		case errors.Is(err, bufio.ErrBufferFull):
			return nil, r.here(fmt.Errorf("line longer than %d bytes: not a Headway trace", lineBytesMax))
		case errors.Is(err, io.EOF) && len(r.buf) == 0:
			return nil, io.EOF
		case errors.Is(err, io.EOF):
			err = errTorn
		}
		at := r.here(err)
		at.Torn = errors.Is(err, errTorn)
		return nil, at
	}
}

// here is an error at the next line.
func (r *Reader) here(err error) *Error {
	return &Error{Line: int(r.at.Line) + 1, Offset: r.offset, Packed: r.text.frames != nil, Err: err}
}

// Offset returns how many bytes the lines read so far take, as text.
func (r *Reader) Offset() int64 { return r.offset }

// Encoder returns an encoder that goes on after the last line read.
func (r *Reader) Encoder() *Encoder { return Resume(r.at) }

// Position returns where the next line is.
func (r *Reader) Position() Position { return r.at }
