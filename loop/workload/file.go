package workload

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
)

// MaxFileLines bounds a file of measured lengths or times, so that a wrong
// path cannot exhaust memory.
const MaxFileLines = 1 << 24

// ReadLengths reads measured response lengths, in tokens, from a file. Each
// line is one of
//
//	1432                               one rollout, its siblings unknown
//	[812, 1432, 990, 2210]             one group
//	{"lengths": [812, 1432]}           one group; other keys are ignored
//	{"group": "p17", "length": 1432}   one rollout of a named group
//
// Blank lines and lines that start with # are skipped. Lines without a group
// and lines with one cannot be mixed. Errors name the file and the line.
func ReadLengths(path string) ([][]int, error) {
	read := fileReader[int]{list: "lengths", single: "length", parse: parseTokens}
	return read.file(path)
}

// ReadServiceTimes reads measured service times, in seconds, from a file of
// the same forms as [ReadLengths], with the keys "times_s" and "time_s".
func ReadServiceTimes(path string) ([][]float64, error) {
	read := fileReader[float64]{list: "times_s", single: "time_s", parse: parseSeconds}
	return read.file(path)
}

// fileReader reads one kind of measured value.
type fileReader[T any] struct {
	list, single string                       // JSON keys of a whole group and of one rollout
	parse        func(json.Number) (T, error) // checks one value
	groups       [][]T
	named        map[string]int // group name to index in groups
	grouped      bool
	ungrouped    bool
}

// file reads a whole file.
func (r *fileReader[T]) file(path string) ([][]T, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("measured %s: %w", r.list, err)
	}
	defer f.Close()
	if err := r.read(f, path); err != nil {
		return nil, err
	}
	return r.groups, nil
}

// read reads lines until the end.
func (r *fileReader[T]) read(in io.Reader, name string) error {
	r.named = map[string]int{}
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, 64<<10), 16<<20)
	n := 0
	for lines.Scan() {
		if n++; n > MaxFileLines {
			return fmt.Errorf("%s:%d: more than %d lines: take a sample of the file", name, n, MaxFileLines)
		}
		text := bytes.TrimSpace(lines.Bytes())
		if len(text) == 0 || text[0] == '#' {
			continue
		}
		if err := r.line(text); err != nil {
			return fmt.Errorf("%s:%d: %w", name, n, err)
		}
		if r.grouped && r.ungrouped {
			return fmt.Errorf("%s:%d: this line and earlier ones disagree on whether rollouts belong to groups: give every line a group, or none", name, n)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%s:%d: %w", name, n+1, err)
	}
	if len(r.groups) == 0 {
		return fmt.Errorf("%s: no %s in it: want one number, list or JSON object a line", name, r.list)
	}
	return nil
}

// line adds what one line holds.
func (r *fileReader[T]) line(text []byte) error {
	switch text[0] {
	case '[':
		var list []json.Number
		if err := decode(text, &list); err != nil {
			return err
		}
		return r.group(list)
	case '{':
		return r.object(text)
	}
	value, err := r.parse(json.Number(text))
	if err != nil {
		return err
	}
	r.ungrouped = true
	r.groups = append(r.groups, []T{value})
	return nil
}

// object adds a JSON object: a whole group or one rollout.
func (r *fileReader[T]) object(text []byte) error {
	var fields map[string]json.RawMessage
	if err := decode(text, &fields); err != nil {
		return err
	}
	if raw, ok := fields[r.list]; ok {
		var list []json.Number
		if err := decode(raw, &list); err != nil {
			return fmt.Errorf("%s: %w", r.list, err)
		}
		return r.group(list)
	}
	raw, ok := fields[r.single]
	if !ok {
		return fmt.Errorf("want the key %q (one rollout) or %q (a group)", r.single, r.list)
	}
	value, err := r.parse(json.Number(bytes.TrimSpace(raw)))
	if err != nil {
		return err
	}
	name, named := fields["group"]
	if !named {
		r.ungrouped = true
		r.groups = append(r.groups, []T{value})
		return nil
	}
	r.grouped = true
	i, seen := r.named[string(name)]
	if !seen {
		i = len(r.groups)
		r.named[string(name)] = i
		r.groups = append(r.groups, nil)
	}
	r.groups[i] = append(r.groups[i], value)
	return nil
}

// group adds one whole group.
func (r *fileReader[T]) group(list []json.Number) error {
	if len(list) == 0 {
		return errors.New("an empty group: want at least one value")
	}
	values := make([]T, len(list))
	for i, n := range list {
		v, err := r.parse(n)
		if err != nil {
			return err
		}
		values[i] = v
	}
	r.grouped = true
	r.groups = append(r.groups, values)
	return nil
}

// decode parses one JSON value and nothing after it, keeping numbers exact.
func decode(text []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(into); err != nil {
		return fmt.Errorf("not a number, list or JSON object: %w", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return errors.New("more than one value on a line: want one number, list or JSON object")
	}
	return nil
}

// parseTokens checks one measured length.
func parseTokens(n json.Number) (int, error) {
	tokens, err := strconv.Atoi(n.String())
	if err != nil || tokens < 1 || tokens > MaxTokens {
		return 0, fmt.Errorf("length %q: want a whole number of tokens from 1 to %d", n.String(), MaxTokens)
	}
	return tokens, nil
}

// parseSeconds checks one measured service time.
func parseSeconds(n json.Number) (float64, error) {
	seconds, err := strconv.ParseFloat(n.String(), 64)
	if err != nil || !(seconds >= 0 && seconds <= MaxServiceS) {
		return 0, fmt.Errorf("time %q: want seconds from 0 to %d", n.String(), MaxServiceS)
	}
	return seconds, nil
}
