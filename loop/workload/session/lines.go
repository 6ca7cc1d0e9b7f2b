package session

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
)

// line is one line without its end. Its text is valid until the next is read.
type line struct {
	text   []byte
	number int
	// ended: a line feed closes it, so that it is whole.
	ended bool
}

// lines reads lines that are not empty.
type lines struct {
	in     *bufio.Reader
	number int
	long   []byte
}

// next returns the next line that is not empty, and io.EOF after the last.
func (l *lines) next() (line, error) {
	for {
		l.number++
		text, err := l.read()
		if err != nil && err != io.EOF {
			return line{number: l.number}, err
		}
		ended := err == nil
		if text = bytes.TrimRight(text, " \t\r\n"); len(bytes.TrimSpace(text)) > 0 {
			return line{text, l.number, ended}, nil
		}
		if !ended {
			return line{number: l.number}, io.EOF
		}
	}
}

// read returns one line with its end, and with it io.EOF where the file ends first.
func (l *lines) read() ([]byte, error) {
	part, err := l.in.ReadSlice('\n')
	if err != bufio.ErrBufferFull {
		return part, err
	}
	l.long = append(l.long[:0], part...)
	for err == bufio.ErrBufferFull {
		part, err = l.in.ReadSlice('\n')
		if len(l.long)+len(part) > MaxLine {
			return nil, fmt.Errorf("the line is longer than %d MiB: want a session or a request a line", MaxLine>>20)
		}
		l.long = append(l.long, part...)
	}
	return l.long, err
}
