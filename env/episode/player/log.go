package player

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/headway-rl/headway/env/episode"
)

// LogName is the file of a run's directory that has a record of every episode, a line each.
const LogName = "episodes.jsonl"

// Sizes of a log.
const (
	// partBytes is how long the file grows before it is set aside and compressed; partsMax is how many
	// of those are kept, the newest.
	partBytes = 64 << 20
	partsMax  = 64
	// lineMax is the longest line that is read.
	lineMax = 16 << 20
)

// Log appends records to a run's episodes.jsonl. Every line is written at once; one that a crash
// has torn is cut off by the next process. Long files are set aside as episodes-N.jsonl.gz.
type Log struct {
	dir       string
	partBytes int64

	mu          sync.Mutex
	file        *os.File
	size        int64
	compressing sync.WaitGroup
	err         error
	// tidying is held by whoever compresses and removes parts.
	tidying sync.Mutex
}

// OpenLog opens the log of a run's directory.
func OpenLog(dir string) (*Log, error) { return openLog(dir, partBytes) }

func openLog(dir string, partBytes int64) (*Log, error) {
	l := &Log{dir: dir, partBytes: partBytes}
	if err := l.open(); err != nil {
		return nil, err
	}
	for _, part := range parts(dir) { // what a crash left uncompressed
		if !part.compressed {
			l.compressing.Go(func() { l.note(l.tidy(part.path)) })
		}
	}
	return l, nil
}

// open opens the file and cuts off a torn last line.
func (l *Log) open() error {
	file, err := os.OpenFile(filepath.Join(l.dir, LogName), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	size, err := wholeLines(file)
	if err == nil {
		err = file.Truncate(size)
	}
	if err != nil {
		return errors.Join(err, file.Close())
	}
	l.file, l.size = file, size
	return nil
}

// wholeLines is the length of a file up to its last line break.
func wholeLines(file *os.File) (int64, error) {
	end, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, err
	}
	block := make([]byte, 1<<16)
	for end > 0 {
		from := max(end-int64(len(block)), 0)
		n, err := file.ReadAt(block[:end-from], from)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		if at := bytes.LastIndexByte(block[:n], '\n'); at >= 0 {
			return from + int64(at) + 1, nil
		}
		end = from
	}
	return 0, nil
}

// Append writes a record. It returns the first error since the last call, of this or of the work
// beside it. The record is lost then, and later ones are tried all the same.
func (l *Log) Append(record episode.Record) error {
	line, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("a record of %s is no JSON: %w", record.Rollout, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	err, l.err = l.err, nil
	if l.file == nil {
		return errors.Join(err, os.ErrClosed)
	}
	n, wrong := l.file.Write(append(line, '\n'))
	l.size += int64(n)
	if wrong != nil && n > 0 { // a piece of a line would spoil the next
		wrong = errors.Join(wrong, l.file.Truncate(l.size-int64(n)))
		l.size -= int64(n)
	}
	if l.size >= l.partBytes {
		wrong = errors.Join(wrong, l.rotate())
	}
	return errors.Join(err, wrong)
}

// rotate sets the file aside and begins another. l.mu must be held.
func (l *Log) rotate() error {
	kept := parts(l.dir)
	next := 1
	if len(kept) > 0 {
		next = kept[len(kept)-1].number + 1
	}
	path := filepath.Join(l.dir, fmt.Sprintf("episodes-%06d.jsonl", next))
	if err := os.Rename(l.file.Name(), path); err != nil {
		return err
	}
	err := errors.Join(l.file.Close(), l.open())
	l.compressing.Go(func() { l.note(l.tidy(path)) })
	return err
}

// tidy compresses a part, unless it is so old by now that it was removed, and removes parts of which
// there are newer ones enough. One does so at a time: a part is not removed while it is compressed.
func (l *Log) tidy(path string) error {
	l.tidying.Lock()
	defer l.tidying.Unlock()
	err := compress(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	kept := parts(l.dir)
	for _, part := range kept[:max(len(kept)-partsMax, 0)] {
		err = errors.Join(err, os.Remove(part.path))
	}
	return err
}

func (l *Log) note(err error) {
	if err == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = errors.Join(l.err, err)
}

// Close waits for what is being compressed and closes the file.
func (l *Log) Close() error {
	l.compressing.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	err := errors.Join(l.err, l.file.Close())
	l.file, l.err = nil, nil
	return err
}

// compress makes PATH.gz of a file and removes it.
func compress(path string) error {
	from, err := os.Open(path)
	if err != nil {
		return err
	}
	defer from.Close()
	half := path + ".gz.tmp"
	to, err := os.OpenFile(half, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	w := gzip.NewWriter(to)
	_, err = io.Copy(w, from)
	err = errors.Join(err, w.Close(), to.Sync(), to.Close())
	if err != nil {
		return errors.Join(err, os.Remove(half))
	}
	return errors.Join(os.Rename(half, path+".gz"), os.Remove(path))
}

// part is a file that was set aside.
type part struct {
	path       string
	number     int
	compressed bool
}

// parts are the files that were set aside, oldest first; of one that is there twice, the compressed.
func parts(dir string) []part {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	byNumber := map[int]part{}
	for _, e := range entries {
		var n int
		name := e.Name()
		if _, err := fmt.Sscanf(name, "episodes-%06d.jsonl", &n); err != nil || strings.HasSuffix(name, ".tmp") {
			continue
		}
		p := part{filepath.Join(dir, name), n, strings.HasSuffix(name, ".gz")}
		if have, twice := byNumber[n]; !twice || !have.compressed {
			byNumber[n] = p
		}
	}
	var all []part
	for _, p := range byNumber {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b part) int { return a.number - b.number })
	return all
}

// ReadLog calls f with every record of a run's directory, oldest first. A run without a log has
// none. A last line without its end is being written, or was torn by a crash: it is left out.
func ReadLog(dir string, f func(episode.Record) error) error {
	for _, p := range parts(dir) {
		if err := readPart(p.path, p.compressed, f); err != nil {
			return err
		}
	}
	err := readPart(filepath.Join(dir, LogName), false, f)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func readPart(path string, compressed bool, f func(episode.Record) error) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	var from io.Reader = file
	if compressed {
		unpacked, err := gzip.NewReader(file)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		from = unpacked
	}
	lines := newLineReader(from)
	for number := 1; ; number++ {
		line, err := lines.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		var record episode.Record
		if err == nil {
			err = json.Unmarshal(line, &record)
		}
		if err == nil {
			err = f(record)
		}
		if err != nil {
			return fmt.Errorf("%s:%d: %w", path, number, err)
		}
	}
}
