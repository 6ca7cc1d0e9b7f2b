package steps

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/headway-rl/headway/loop"
)

// Reader reads a run's metrics.jsonl as far as its trace has been read.
type Reader struct {
	file  *os.File
	lines *bufio.Reader
	// part is a line that is not whole yet, ahead one of a step that has not been reached.
	part  []byte
	ahead *Line
}

// Open opens the metrics.jsonl of a run directory, nil where there is none.
func Open(dir string) *Reader {
	file, err := os.Open(filepath.Join(dir, File))
	if err != nil {
		return nil
	}
	return &Reader{file: file, lines: bufio.NewReaderSize(file, 1<<16)}
}

// lineMax bounds a line, so that a file of something else cannot exhaust memory.
const lineMax = 1 << 20

// Next returns the next line of a step up to a version, nil if there is none yet. A line that cannot be read is passed over.
func (r *Reader) Next(upTo loop.Version) *Line {
	for r.ahead == nil {
		text, err := r.lines.ReadSlice('\n')
		r.part = append(r.part, text...)
		if len(r.part) > lineMax {
			r.part = r.part[:0]
		}
		if err == bufio.ErrBufferFull {
			continue
		}
		if err != nil {
			return nil // it may still grow
		}
		line := new(Line)
		if json.Unmarshal(r.part, line) == nil {
			r.ahead = line
		}
		r.part = r.part[:0]
	}
	if r.ahead.Step > upTo {
		return nil
	}
	line := r.ahead
	r.ahead = nil
	return line
}

// newestBytes is how much of the end of a file is read for its newest line.
const newestBytes = 1 << 18

// Newest returns the last whole line of a run directory's metrics.jsonl, nil where there is none. It reads the end alone.
func Newest(dir string) *Line {
	file, err := os.Open(filepath.Join(dir, File))
	if err != nil {
		return nil
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Size() > newestBytes {
		_, _ = file.Seek(-newestBytes, io.SeekEnd) // a pipe has no end to seek, and is read from its beginning
	}
	text, err := io.ReadAll(io.LimitReader(file, newestBytes))
	if err != nil {
		return nil
	}
	for _, read := range slices.Backward(bytes.Split(text, []byte("\n"))) {
		line := new(Line)
		if json.Unmarshal(read, line) == nil {
			return line
		}
	}
	return nil
}

// Close closes the file.
func (r *Reader) Close() error { return r.file.Close() }
