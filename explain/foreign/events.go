package foreign

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/headway-rl/headway/internal/tfevents"
)

// events is one of TensorBoard's event files. Its writers log tag by tag: events of one step that follow
// each other are one row.
type events struct{ path string }

func fitsEvents(file string, head []byte) bool {
	const version = "brain.Event:"
	return strings.Contains(filepath.Base(file), "tfevents") || len(head) > 64 && strings.Contains(string(head[:64]), version)
}

func openEvents(file, _ string) Source { return events{file} }

func (s events) Path() string { return s.path }

func (s events) Read(ctx context.Context, taker Taker) error {
	f, err := os.Open(s.path)
	if err != nil {
		return err
	}
	defer f.Close()
	reader := tfevents.NewReader(f)
	row := Row{File: s.path, Values: map[string]float64{}, HasStep: true}
	told := int64(0)
	for n := 0; ; n++ {
		if n%contextEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		event, err := reader.Next()
		taker.Read(reader.Read() - told)
		told = reader.Read()
		switch {
		case errors.Is(err, io.EOF):
			return rowTaken(&row, taker)
		case errors.Is(err, tfevents.ErrTorn), errors.Is(err, tfevents.ErrDamaged), errors.Is(err, tfevents.ErrLost):
			taker.Warn(s.path, 0, err.Error()+"; left out")
			continue
		case err != nil:
			return err
		}
		if event.Step != row.Step {
			if err := rowTaken(&row, taker); err != nil {
				return err
			}
			row.Step = event.Step
		}
		for _, scalar := range event.Scalars {
			if why, ok := admits(row.Values, scalar.Tag); !ok {
				taker.Warn(s.path, 0, why)
				continue
			}
			row.Values[scalar.Tag] = scalar.Value
			row.TimeS = event.WallTime
		}
		for tag, text := range event.Texts {
			hyperparameters(tag, text, taker)
		}
	}
}

// rowTaken hands a row on, if it says anything, and empties it.
func rowTaken(row *Row, taker Taker) error {
	if len(row.Values) == 0 {
		return nil
	}
	err := taker.Row(*row)
	clear(row.Values)
	row.TimeS = 0
	return err
}

// hyperparameters takes a text that is a config: a JSON object, as transformers' callback writes its arguments,
// in a code block.
func hyperparameters(tag, text string, taker Taker) {
	tag, _, _ = strings.Cut(tag, "/text_summary")
	text = strings.TrimSpace(text)
	if !strings.HasPrefix(text, "{") {
		return
	}
	settings("", text, taker)
	settings(tag+".", text, taker)
}

// settings takes the numbers and texts of a JSON object as settings.
func settings(prefix, text string, taker Taker) {
	f := flat{rest: []byte(text)}
	f.number = func(key []byte, value float64) { taker.Setting(prefix+string(key), plainNumber(value)) }
	f.text = func(key, value []byte) { taker.Setting(prefix+string(key), string(value)) }
	_ = f.read() // a text that is no JSON is no config
}
