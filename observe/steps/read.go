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

// Reader reads a run's metrics.jsonl as far as its trace has been read. A run that is resumed writes the file anew: it goes
// on in that one.
type Reader struct {
	path  string
	file  *os.File
	about os.FileInfo // the file, to know it again
	lines *bufio.Reader
	// part is a line that is not whole yet, ahead one of a step that has not been reached. given is the newest step that was
	// returned.
	part  []byte
	ahead *Line
	given loop.Version
}

// Open opens the metrics.jsonl of a run directory, nil where there is none.
func Open(dir string) *Reader {
	r := &Reader{path: filepath.Join(dir, File)}
	if !r.open() {
		return nil
	}
	return r
}

// open begins to read the file that is there now, and reports whether one is. What was read of another is forgotten.
func (r *Reader) open() bool {
	file, err := os.Open(r.path)
	if err != nil {
		return false
	}
	about, err := file.Stat()
	if err != nil {
		file.Close()
		return false
	}
	if r.file != nil {
		r.file.Close()
	}
	r.file, r.about, r.lines, r.part, r.ahead = file, about, bufio.NewReaderSize(file, 1<<16), nil, nil
	return true
}

// lineMax bounds a line, so that a file of something else cannot exhaust memory.
const lineMax = 1 << 20

// Next returns the next line of a step up to a version, nil if there is none yet. A line that cannot be read is passed over.
func (r *Reader) Next(upTo loop.Version) *Line {
	if now, err := os.Stat(r.path); err == nil && !os.SameFile(now, r.about) {
		_ = r.open() // else the next call tries again
	}
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
		if json.Unmarshal(r.part, line) == nil && line.Step > r.given {
			r.ahead = line
		}
		r.part = r.part[:0]
	}
	if r.ahead.Step > upTo {
		return nil
	}
	line := r.ahead
	r.ahead, r.given = nil, line.Step
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
