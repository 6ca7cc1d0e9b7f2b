package taskset

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// endings are of files that are read of a directory; others in it are left alone.
var endings = []string{".jsonl", ".ndjson", ".json", ".jsonl.gz", ".ndjson.gz", ".json.gz", ".jsonl.zst", ".ndjson.zst", ".json.zst", ".parquet"}

// holdsTasks reports whether a file of a directory is read, by its name in any case.
func holdsTasks(name string) bool {
	return slices.ContainsFunc(endings, func(e string) bool { return strings.HasSuffix(strings.ToLower(name), e) })
}

// path reads a file or a directory.
func (l *loader) path(path string) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		l.begin(path)
		l.report(0, "%v", why(err))
	case !info.IsDir() && !info.Mode().IsRegular(): // a device has no end, and a pipe may have no writer
		l.begin(path)
		l.report(0, "is no file: it is %v", info.Mode())
	case !info.IsDir():
		l.file(path)
	case isHarbor(path):
		l.harbor(path)
	default:
		l.directory(path)
	}
}

// why is an error of the file system without the path, which stands before it anyway.
func why(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	return err
}

// begin begins a file: what is said from now on is of it.
func (l *loader) begin(path string) { l.set.files = append(l.set.files, filepath.ToSlash(path)) }

// directory reads the files of a directory by their names, and those of the directories in it.
func (l *loader) directory(path string) {
	var files []string
	err := filepath.WalkDir(path, func(at string, d fs.DirEntry, err error) error {
		name := strings.ToLower(d.Name())
		switch {
		case err != nil:
			return err
		case at != path && strings.HasPrefix(name, "."):
			if d.IsDir() {
				return fs.SkipDir
			}
		case !d.IsDir() && holdsTasks(name):
			files = append(files, at)
		}
		return nil
	})
	if err != nil || len(files) == 0 {
		l.begin(path)
		if err != nil {
			l.report(0, "%v", err)
			return
		}
		l.report(0, "the directory has no tasks: want files that end in %s, or folders with a task.toml", strings.Join(endings, ", "))
		return
	}
	for _, file := range files {
		l.file(file)
	}
}

// file reads a file by what it begins with, whatever it is called.
func (l *loader) file(path string) {
	if l.full() {
		return
	}
	l.begin(path)
	before, beginning := l.rows, l.found.count
	if err := l.open(path); err != nil {
		l.report(0, "%v", why(err))
	}
	if l.rows == before && l.found.count == beginning {
		l.report(0, "the file has no tasks: want an object a line")
	}
}

func (l *loader) open(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	read := bufio.NewReaderSize(f, 1<<20)
	magic, err := read.Peek(4)
	if err != nil && err != io.EOF {
		return err
	}
	switch {
	case string(magic) == "PAR1":
		return l.columns(f)
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		plain, err := gzip.NewReader(read)
		if err != nil {
			return fmt.Errorf("it is compressed by gzip, and broken: %w", err)
		}
		return l.lines(bufio.NewReaderSize(plain, 1<<16))
	case bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		plain, err := zstd.NewReader(read, zstd.WithDecoderMaxWindow(1<<27))
		if err != nil {
			return fmt.Errorf("it is compressed by Zstandard, and broken: %w", err)
		}
		defer plain.Close()
		return l.lines(bufio.NewReaderSize(plain, 1<<16))
	}
	return l.lines(read)
}

// columns reads a file that is stored by columns.
func (l *loader) columns(f *os.File) error {
	if l.opt.Columns == nil {
		return errors.New("it is Parquet, which this program does not read: want JSON lines")
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	n := 0
	return l.opt.Columns(f, info.Size(), func(object []byte, err error) bool {
		n++
		if err == nil && len(object) > l.opt.LineMax {
			err = fmt.Errorf("the row is longer than %d bytes: want shorter ones, or a higher limit", l.opt.LineMax)
		}
		if err != nil {
			l.rows++
			l.report(n, "%v", err)
		} else {
			l.row(object, n)
		}
		return !l.full()
	})
}

// lines reads JSON lines. Empty ones count and are passed over.
func (l *loader) lines(r *bufio.Reader) error {
	if mark, _ := r.Peek(3); string(mark) == "\xef\xbb\xbf" { // some editors write it before UTF-8
		r.Discard(3)
	}
	if mark, _ := r.Peek(2); string(mark) == "\xff\xfe" || string(mark) == "\xfe\xff" {
		return errors.New("it is in UTF-16: want the file in UTF-8")
	}
	var long []byte
	for n := 1; ; n++ {
		line, err := r.ReadSlice('\n')
		if err == bufio.ErrBufferFull {
			line, err = l.longLine(r, append(long[:0], line...), n)
			long = line
		}
		if len(bytes.TrimSpace(line)) > 0 {
			l.row(line, n)
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return fmt.Errorf("it cannot be read after line %d: %w", n, err)
		case l.full():
			return nil
		}
	}
}

// longLine reads the rest of a line. One beyond the limit is passed over, and a mistake.
func (l *loader) longLine(r *bufio.Reader, line []byte, n int) ([]byte, error) {
	for {
		more, err := r.ReadSlice('\n')
		if len(line) <= l.opt.LineMax {
			line = append(line, more...)
		}
		if err == bufio.ErrBufferFull {
			continue
		}
		if len(line) > l.opt.LineMax {
			l.rows++
			l.report(n, "the line is longer than %d bytes: want shorter ones, or a higher limit", l.opt.LineMax)
			return line[:0], err
		}
		return line, err
	}
}
