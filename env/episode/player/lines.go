package player

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// lineReader reads whole lines of bounded length.
type lineReader struct{ from *bufio.Reader }

func newLineReader(from io.Reader) *lineReader { return &lineReader{bufio.NewReaderSize(from, 1<<16)} }

// next is the next line without its end, and io.EOF behind the last whole one.
func (r *lineReader) next() ([]byte, error) {
	var line []byte
	for {
		piece, err := r.from.ReadSlice('\n')
		line = append(line, piece...)
		switch {
		case err == nil:
			return line[:len(line)-1], nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		case len(line) > lineMax:
			return nil, fmt.Errorf("the line is longer than %d bytes", lineMax)
		}
	}
}
