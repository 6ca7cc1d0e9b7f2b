package taskset

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/headway-rl/headway/internal/replace"
)

// The file of counts begins with countsHeader. Each further line is a task with all that is known of it
// by then, or a group and the number of what it plays:
//
//	["id",level,attempts,failed,solved,whole,parts,version,last_ms]
//	[group,number]
//
// The last line of a task holds, so that a line is appended for every result and the file is written
// anew, without the lines that do not hold any more, when most of it is of those. A line that a
// crash has cut is taken off. One that a writer has left which was deposed, and behind which its successor
// has gone on, stands by itself and is passed over, as are empty lines.
const countsHeader = `{"headway":"tasks","version":1}`

// slack is how many lines that do not hold any more a file may have beside as many as hold.
const slack = 4096

// OpenCounts opens the file of counts or makes it.
func OpenCounts(path string) (*Counts, error) {
	b := &Counts{path: path, tallies: map[string]*tally{}, pins: map[int64]int64{}}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600) // a writer that was deposed may not know it yet
	if err != nil {
		return nil, fmt.Errorf("taskset: %w", err)
	}
	b.file = f
	if err := b.read(); err != nil {
		f.Close()
		return nil, fmt.Errorf("taskset: the counts of tasks in %s cannot be read: %w", path, err)
	}
	return b, nil
}

// read reads the whole file, and cuts off what is not whole at its end.
func (b *Counts) read() error {
	r := bufio.NewReaderSize(b.file, 1<<16)
	whole := int64(0)
	for n := 1; ; n++ {
		line, err := r.ReadSlice('\n')
		if err == io.EOF {
			break
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		whole += int64(len(line))
		line = bytes.TrimSuffix(line, []byte("\n"))
		if n == 1 {
			if string(line) != countsHeader {
				return fmt.Errorf("it begins with %.60q and not with %s: it is no such file, or another version's", line, countsHeader)
			}
			continue
		}
		if len(line) == 0 {
			continue
		}
		if !json.Valid(line) {
			b.torn++
			b.lines++
			continue
		}
		if err := b.line(line); err != nil {
			return fmt.Errorf("line %d: %w: mend or remove the line, or remove the file to count anew", n, err)
		}
		b.lines++
	}
	if err := b.file.Truncate(whole); err != nil {
		return err
	}
	b.end = whole
	if whole > 0 {
		return nil
	}
	n, err := b.file.WriteString(countsHeader + "\n")
	b.end = int64(n)
	if err == nil {
		err = b.file.Sync() // or a loss of power takes it away from before the lines of another machine
	}
	return err
}

// line takes one line.
func (b *Counts) line(line []byte) error {
	if len(line) < 2 || line[1] != '"' {
		var pin [2]int64
		if err := strict(line, &pin); err != nil || pin[0] < 1 || pin[1] < 1 {
			return fmt.Errorf("%.60q is neither a task nor a group", line)
		}
		b.pins[pin[0]] = pin[1]
		return nil
	}
	var fields []json.RawMessage
	var task string
	if err := json.Unmarshal(line, &fields); err != nil || len(fields) != 9 || json.Unmarshal(fields[0], &task) != nil {
		return fmt.Errorf("%.60q is no task with 8 numbers", line)
	}
	var n [8]int64
	for i, field := range fields[1:] {
		var err error
		if n[i], err = strconv.ParseInt(string(field), 10, 64); err != nil {
			return fmt.Errorf("%.60q is no task with 8 numbers", line)
		}
	}
	t := &tally{int(n[0]), n[1], n[2], n[3], n[4], n[5], n[6], n[7]}
	if t.failed < 0 || t.solved < 0 || t.attempts < t.failed+t.solved || t.parts < 0 {
		return fmt.Errorf("%.60q does not add up", line)
	}
	b.tallies[task] = t
	return nil
}

// strict reads JSON of exactly two numbers.
func strict(line []byte, pin *[2]int64) error {
	var all []int64
	if err := json.Unmarshal(line, &all); err != nil {
		return err
	}
	if len(all) != 2 {
		return errors.New("want two numbers")
	}
	copy(pin[:], all)
	return nil
}

func tallyLine(task string, t *tally) []byte {
	name, _ := json.Marshal(task)
	line := append(append(make([]byte, 0, len(name)+64), '['), name...)
	for _, n := range [...]int64{int64(t.level), t.attempts, t.failed, t.solved, t.whole, t.parts, t.version, t.lastMS} {
		line = strconv.AppendInt(append(line, ','), n, 10)
	}
	return append(line, "]\n"...)
}

func pinLine(group, number int64) []byte { return fmt.Appendf(nil, "[%d,%d]\n", group, number) }

// append adds a line in one write at the file's end, so that another process never sees half of it, and none writes over
// what the other has written. Or it writes the file anew.
func (b *Counts) append(line []byte) error {
	if b.file == nil {
		return fmt.Errorf("taskset: the counts of tasks in %s are closed", b.path)
	}
	if b.broken || b.lines > 2*(len(b.tallies)+len(b.pins))+slack {
		return b.rewrite()
	}
	info, err := b.file.Stat()
	if err == nil {
		if info.Size() != b.end { // somebody else has written, perhaps half a line
			line = append([]byte{'\n'}, line...)
		}
		_, err = b.file.Write(line)
	}
	if err != nil {
		b.broken = true
		return fmt.Errorf("taskset: a result is not in the file yet: %w", err)
	}
	b.end = info.Size() + int64(len(line))
	b.lines++
	return nil
}

// rewrite puts a new file in the place of the old one, which is there until the new one is whole.
func (b *Counts) rewrite() error {
	temporary := b.path + ".new"
	f, err := os.OpenFile(temporary, os.O_RDWR|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("taskset: %w", err)
	}
	w := bufio.NewWriterSize(f, 1<<16)
	w.WriteString(countsHeader + "\n")
	for _, task := range slices.Sorted(maps.Keys(b.tallies)) {
		w.Write(tallyLine(task, b.tallies[task]))
	}
	for _, group := range slices.Sorted(maps.Keys(b.pins)) {
		w.Write(pinLine(group, b.pins[group]))
	}
	err = errors.Join(w.Flush(), f.Sync())
	if err == nil {
		err = os.Rename(temporary, b.path)
	}
	if err != nil {
		f.Close()
		os.Remove(temporary)
		return fmt.Errorf("taskset: the counts of tasks cannot be written: %w", err)
	}
	b.file.Close()
	b.file, b.lines, b.broken = f, len(b.tallies)+len(b.pins), false
	if b.end, err = f.Seek(0, io.SeekEnd); err != nil {
		return fmt.Errorf("taskset: %w", err)
	}
	return replace.Directory(filepath.Dir(b.path))
}

// Close makes the file durable. More than once is no error.
func (b *Counts) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.file == nil {
		return nil
	}
	var err error
	if b.broken {
		err = b.rewrite()
	}
	err = errors.Join(err, b.file.Sync(), b.file.Close())
	b.file = nil
	if errors.Is(err, fs.ErrClosed) {
		return nil
	}
	return err
}
