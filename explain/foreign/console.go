package foreign

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// consoleText is what a run printed, saved to a file: metrics stand among other lines, of several processes.
type consoleText struct{ path string }

// consoleLineMax is the longest line of console text that is looked at, in bytes.
const consoleLineMax = 1 << 20

// pendingMax is how many figures are kept until their step is known.
const pendingMax = 1 << 12

func fitsConsole(file string, head []byte) bool {
	if len(head) == 0 || bytes.IndexByte(head, 0) >= 0 {
		return false
	}
	switch strings.ToLower(filepath.Ext(file)) {
	case ".log", ".out", ".err", ".console": // however much is printed before the first step
		return true
	case ".txt", "":
	default:
		return false
	}
	found := &consoleRows{take: func(Row) error { return errEnough }}
	for line := range bytes.Lines(head) {
		if found.line(line, 0) != nil {
			return true
		}
	}
	return found.at.known
}

func openConsole(file, _ string) Source { return consoleText{file} }

func (s consoleText) Path() string { return s.path }

func (s consoleText) Read(ctx context.Context, taker Taker) error {
	rows := &consoleRows{take: taker.Row, setting: taker.Setting, file: s.path}
	err := Lines(ctx, s.path, taker, func(line []byte, number int64, whole bool) error {
		switch {
		case len(line) > consoleLineMax:
			taker.Warn(s.path, number, "a line of console text is longer than 1 MiB; left out")
			return nil
		case !whole && bytes.Contains(line, []byte("{")):
			taker.Warn(s.path, number, "the last line is cut off")
		}
		return rows.line(line, number)
	})
	if err != nil {
		return err
	}
	return rows.flush()
}

// consoleRows makes rows of lines. Figures whose line says no step wait for one: for the end of the step
// that began before, or for the line that ends theirs.
type consoleRows struct {
	file    string
	take    func(Row) error
	setting func(key, value string)
	pending map[string]float64
	// first is the line of the first that waits, timeS of the last.
	first int64
	timeS float64
	at    step
}

// step is a step that a line has named.
type step struct {
	number int64
	known  bool
}

// line takes a line as it was printed. What a carriage return has overwritten was a line, too.
func (c *consoleRows) line(line []byte, number int64) error {
	for part := range bytes.SplitSeq(line, []byte("\r")) {
		text := strings.ToValidUTF8(printed(part), string(utf8.RuneError))
		if text == "" {
			continue
		}
		if err := c.text(text, number); err != nil {
			return err
		}
	}
	return nil
}

func (c *consoleRows) text(text string, number int64) error {
	if at := stampOf(text); at != 0 {
		c.timeS = at
	}
	if strings.Contains(text, "] queue_size=") && c.setting != nil {
		if found := queueSize.FindStringSubmatch(text); found != nil {
			c.setting(found[1], found[2])
		}
	}
	says, values, named := readText(text)
	switch {
	case says.ends:
		c.wait(values, number)
		before := c.at
		c.at = step{says.number, true}
		err := c.flush()
		c.at = before
		return err
	case says.begins:
		if !c.at.known {
			c.pending = nil // printed before the first step
		}
		if err := c.flush(); err != nil {
			return err
		}
		c.at = step{says.number, true}
		c.wait(values, number)
	case named && len(values) > 0:
		return c.emit(values, says.number, true, number)
	default:
		if !c.at.known && c.repeats(values) {
			if err := c.flush(); err != nil {
				return err
			}
		}
		c.wait(values, number)
	}
	return nil
}

func (c *consoleRows) repeats(values map[string]float64) bool {
	for key := range values {
		if _, there := c.pending[key]; there {
			return true
		}
	}
	return false
}

func (c *consoleRows) wait(values map[string]float64, number int64) {
	if len(values) == 0 {
		return
	}
	if len(c.pending) == 0 {
		c.pending, c.first = map[string]float64{}, number
	}
	for key, value := range values {
		if _, there := c.pending[key]; there || len(c.pending) < pendingMax && len(key) <= KeyMax {
			c.pending[key] = value
		}
	}
}

// flush hands on what waits, under the step that has begun.
func (c *consoleRows) flush() error {
	if len(c.pending) == 0 {
		return nil
	}
	values := c.pending
	c.pending = nil
	return c.emit(values, c.at.number, c.at.known, c.first)
}

func (c *consoleRows) emit(values map[string]float64, number int64, known bool, line int64) error {
	return c.take(Row{File: c.file, Line: line, Step: number, HasStep: known, TimeS: c.timeS, Printed: true, Values: values})
}
