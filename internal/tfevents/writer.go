package tfevents

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/headway-rl/headway/internal/wire"
)

// Writer writes an event file. It is not safe for use by several goroutines.
type Writer struct {
	to     io.Writer
	frame  []byte // the newest event's
	rest   []byte // of it, what is still to be written
	event  []byte
	values []byte
	closer io.Closer
}

// NewWriter begins an event file with its version.
func NewWriter(to io.Writer, now time.Time) (*Writer, error) {
	w := &Writer{to: to}
	w.event = wire.AppendDouble(w.event[:0], fieldWallTime, seconds(now))
	w.event = wire.AppendText(w.event, fieldFileVersion, "brain.Event:2")
	return w, w.flush()
}

// Create begins an event file in a directory under a name that TensorBoard finds. A suffix
// tells files of one second apart.
func Create(directory, suffix string, now time.Time) (*Writer, error) {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "localhost"
	}
	name := fmt.Sprintf("events.out.tfevents.%d.%s%s", now.Unix(), host, suffix)
	file, err := os.OpenFile(filepath.Join(directory, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	for again := 1; errors.Is(err, fs.ErrExist); again++ { // of a process that began within this second, too
		file, err = os.OpenFile(filepath.Join(directory, fmt.Sprintf("%s.%d", name, again)), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	}
	if err != nil {
		return nil, err
	}
	w, err := NewWriter(file, now)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file.Name(), err)
	}
	w.closer = file
	return w, nil
}

// Write writes one step's scalars as one event, at once. Values are kept as 32 bits.
func (w *Writer) Write(now time.Time, step int64, scalars []Scalar) error {
	w.values = w.values[:0]
	var value []byte
	for _, s := range scalars {
		value = wire.AppendText(value[:0], fieldTag, s.Tag)
		value = protowire.AppendTag(value, fieldSimple, protowire.Fixed32Type)
		value = protowire.AppendFixed32(value, math.Float32bits(float32(s.Value)))
		w.values = wire.AppendBytes(w.values, fieldValue, value)
	}
	w.event = wire.AppendDouble(w.event[:0], fieldWallTime, seconds(now))
	w.event = wire.AppendNumber(w.event, fieldStep, uint64(step))
	w.event = wire.AppendBytes(w.event, fieldSummary, w.values)
	return w.flush()
}

// Close closes a file that Create has made.
func (w *Writer) Close() error {
	if w.closer == nil {
		return nil
	}
	return w.closer.Close()
}

// flush writes the event. One that is written in part goes on where it stopped: when it is given again, or before the next.
func (w *Writer) flush() error {
	event := appendFrame(nil, w.event)
	if len(w.rest) > 0 {
		again := bytes.Equal(event, w.frame)
		n, err := w.to.Write(w.rest)
		if w.rest = w.rest[n:]; err != nil || again {
			return err
		}
	}
	w.frame = event
	n, err := w.to.Write(w.frame)
	if err != nil && n > 0 {
		w.rest = w.frame[n:]
	}
	return err
}

func seconds(at time.Time) float64 { return float64(at.UnixNano()) / 1e9 }
