package foreign

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

// LineMax is the longest line of a file that is read whole, in bytes; a longer one is left out.
const LineMax = 64 << 20

// contextEvery and contextBytes are after how many lines, or bytes of them, a reader asks whether it should go on.
const (
	contextEvery = 1024
	contextBytes = 64 << 10
)

// Lines hands the lines of a text file to a function, without their ends, with their number from 1. The bytes are valid
// until it returns. Lines beyond LineMax are left out with a warning.
func Lines(ctx context.Context, file string, taker Taker, take func(line []byte, number int64, whole bool) error) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	reader := bufio.NewReaderSize(f, 1<<20)
	var long []byte
	sinceAsked := int64(contextBytes) // once before the first
	for number := int64(1); ; number++ {
		if number%contextEvery == 0 || sinceAsked >= contextBytes {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			sinceAsked = 0
		}
		line, read, whole, err := nextLine(reader, &long)
		taker.Read(read)
		sinceAsked += read
		switch {
		case errors.Is(err, errLong):
			taker.Warn(file, number, fmt.Sprintf("a line is longer than %d MiB; left out", LineMax>>20))
			continue
		case errors.Is(err, io.EOF) && len(line) == 0:
			return nil
		case err != nil && !errors.Is(err, io.EOF):
			return err
		}
		if err := take(line, number, whole); err != nil {
			return err
		}
	}
}

var errLong = errors.New("the line is too long")

// nextLine reads one line. Whole is false where the file ends before the line does.
func nextLine(reader *bufio.Reader, long *[]byte) (line []byte, read int64, whole bool, err error) {
	*long = (*long)[:0]
	tooLong := false
	for {
		part, err := reader.ReadSlice('\n')
		read += int64(len(part))
		if err == nil && len(*long) == 0 && !tooLong {
			return trimEnd(part), read, true, nil
		}
		if len(*long)+len(part) > LineMax {
			tooLong, *long = true, (*long)[:0]
		}
		if !tooLong {
			*long = append(*long, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case tooLong && (err == nil || errors.Is(err, io.EOF)):
			return nil, read, true, errLong
		default:
			return trimEnd(*long), read, err == nil, err
		}
	}
}

func trimEnd(line []byte) []byte {
	for len(line) > 0 && (line[len(line)-1] == '\n' || line[len(line)-1] == '\r') {
		line = line[:len(line)-1]
	}
	return line
}
