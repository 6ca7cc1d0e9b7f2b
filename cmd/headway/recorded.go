package main

import (
	"bufio"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/headway-rl/headway/loop/trace"
)

// holdsTrace reports whether a path is a run of ours: its directory, or its trace. A file
// is known by how it begins. An empty one is a run that has not begun.
func holdsTrace(path string) (bool, error) {
	info, err := os.Stat(path)
	if err != nil {
		return false, err
	}
	if info.IsDir() {
		_, err := os.Stat(filepath.Join(path, trace.FileName))
		return err == nil, nil
	}
	file, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer file.Close()
	begin, err := bufio.NewReader(file).Peek(len(trace.Begins))
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	return string(begin) == trace.Begins || len(begin) == 0 && filepath.Base(path) == trace.FileName, nil
}

// meter shows how far something long is. It is told what is counted, and returns what
// takes the count and what clears the line. The nil meter shows nothing.
type meter func(what string) (update func(done, all int64), clear func())

// begin begins to show what is counted.
func (m meter) begin(what string) (update func(done, all int64), clear func()) {
	if m == nil {
		return func(_, _ int64) {}, func() {}
	}
	return m(what)
}
