package trace

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/headway-rl/headway/loop"
)

// FileName is the trace's name in a run directory, PlainName that of runs of before it was packed.
const (
	FileName  = PlainName + Suffix
	PlainName = "trace.ndjson"
)

// Suffix ends the name of a packed trace.
const Suffix = ".zst"

// Path returns the path of a run directory's trace. That is the plain one where there is no other. Where there is none yet,
// it is where a packed one begins.
func Path(dir string) string {
	packed := filepath.Join(dir, FileName)
	if _, err := os.Lstat(packed); errors.Is(err, fs.ErrNotExist) {
		plain := filepath.Join(dir, PlainName)
		if _, err := os.Lstat(plain); err == nil {
			return plain
		}
	}
	return packed
}

// Is reports whether a file's name is that of the trace of a run directory.
func Is(path string) bool {
	name := filepath.Base(path)
	return name == FileName || name == PlainName
}

// Packed reports whether a trace of that name is packed.
func Packed(path string) bool { return filepath.Ext(path) == Suffix }

// Open opens the trace of a run directory, or a trace file.
func Open(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s does not exist: name a run directory or a trace file", path)
	}
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		f, err := os.Open(Path(path))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s is not a run directory: it has no %s", path, FileName)
		}
		return f, err
	}
	return os.Open(path)
}

// Writer writes a trace to a stream, for drivers that need no group commit.
type Writer struct {
	enc *Encoder
	dst io.Writer
	buf []byte
	err error
}

// NewWriter writes the header to dst.
func NewWriter(dst io.Writer, h Header) (*Writer, error) {
	w := &Writer{enc: &Encoder{}, dst: dst}
	h.Format = Format
	w.Note(NoteHeader, h)
	return w, w.err
}

// Event writes an event and the actions that followed from it.
func (w *Writer) Event(ev Event, actions []loop.Action) {
	w.buf = w.enc.AppendEvent(w.buf[:0], ev)
	for _, a := range actions {
		w.buf = w.enc.AppendAction(w.buf, w.enc.Seq(), a)
	}
	w.flush()
}

// End writes the last line and returns the first error of all writes.
func (w *Writer) End(data any) error {
	w.Note(NoteEnd, data)
	return w.err
}

// Note writes a note.
func (w *Writer) Note(name string, data any) {
	var err error
	if w.buf, err = w.enc.AppendNote(w.buf[:0], name, data); err != nil && w.err == nil {
		w.err = err
	}
	w.flush()
}

func (w *Writer) flush() {
	if w.err == nil {
		_, w.err = w.dst.Write(w.buf)
	}
}
