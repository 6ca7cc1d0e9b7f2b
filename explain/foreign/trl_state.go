package foreign

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
)

// stateMax is the largest trainer_state.json that is read, in bytes: it is one JSON document.
const stateMax = 256 << 20

// readTrainerState reads the log_history of transformers' trainer_state.json: an object for each logged step.
func readTrainerState(ctx context.Context, file string, taker Taker) error {
	about, err := os.Stat(file)
	if err != nil {
		return err
	}
	if about.Size() > stateMax {
		return fmt.Errorf("the file has %d bytes, at most %d are read: give what the run's tracker logged instead", about.Size(), stateMax)
	}
	data, err := readUpTo(file, stateMax) // it may have grown since
	if err != nil {
		return err
	}
	taker.Read(int64(len(data)))
	_, history, there := bytes.Cut(data, []byte(`"log_history"`))
	if !there {
		taker.Warn(file, 0, "there is no log_history in it")
		return nil
	}
	history = bytes.TrimLeft(history, ": \t\r\n")
	history = bytes.TrimPrefix(history, []byte("["))
	row := newRowReader(file)
	for ctx.Err() == nil {
		history = bytes.TrimLeft(history, ", \t\r\n")
		if len(history) == 0 || history[0] != '{' {
			if len(history) == 0 {
				taker.Warn(file, 0, "the last row is cut off; left out")
			}
			return nil
		}
		row.begin()
		row.flat.rest = history
		if err := row.flat.value(nil, 0); err != nil {
			taker.Warn(file, 0, "the last row is cut off; left out")
			return nil
		}
		history = row.flat.rest
		row.tell(taker, 0)
		row.findStep()
		if err := taker.Row(row.row); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// readUpTo reads at most so many bytes of a file's beginning.
func readUpTo(file string, most int64) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most))
}
