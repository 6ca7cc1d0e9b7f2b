package study

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
)

// readLines gives every whole line of a file to take, and leaves the file to be written after
// the last: a line that was torn by the end of the program is cut off. None is reported where there was no line.
func readLines(file *os.File, take func(first bool, text []byte) error) (none bool, err error) {
	reader := bufio.NewReader(file)
	whole := int64(0)
	for {
		text, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return false, err
		}
		if err := take(whole == 0, text); err != nil {
			return false, err
		}
		whole += int64(len(text))
	}
	if err := file.Truncate(whole); err != nil {
		return false, err
	}
	_, err = file.Seek(whole, io.SeekStart)
	return whole == 0, err
}

// writeLine writes a value as a line of JSON.
func writeLine(file *os.File, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	_, err = file.Write(append(text, '\n'))
	return err
}
