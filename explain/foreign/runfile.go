package foreign

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/headway-rl/headway/explain/foreign/wandb"
)

// runFile is W&B's run-ID.wandb.
type runFile struct{ path string }

func fitsRunFile(file string, head []byte) bool {
	return strings.HasPrefix(string(head), ":W&B") || strings.HasSuffix(file, ".wandb")
}

func openRunFile(file, _ string) Source { return runFile{file} }

func (s runFile) Path() string { return s.path }

func (s runFile) Read(ctx context.Context, taker Taker) error {
	f, err := os.Open(s.path)
	if err != nil {
		return err
	}
	defer f.Close()
	reader, err := wandb.NewReader(f)
	if err != nil {
		return err
	}
	row, told := newRowReader(s.path), int64(0)
	for n := 0; ; n++ {
		if n%contextEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		record, err := reader.Next()
		taker.Read(reader.Read() - told)
		told = reader.Read()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, wandb.ErrTorn), errors.Is(err, wandb.ErrDamaged), errors.Is(err, wandb.ErrLong), errors.Is(err, wandb.ErrMany):
			taker.Warn(s.path, 0, err.Error()+"; left out")
			continue
		case err != nil:
			return err
		}
		for _, item := range record.Config {
			configItem(item, taker)
		}
		if len(record.History) > 0 {
			if err := s.history(record, row, taker); err != nil {
				return err
			}
		}
	}
}

// history makes a row of a record.
func (s runFile) history(record *wandb.Record, row *rowReader, taker Taker) error {
	row.begin()
	row.row.Step, row.row.HasStep = record.Step, record.HasStep
	for _, item := range record.History {
		if err := row.member(item.Key, item.JSON); err != nil {
			taker.Warn(s.path, 0, "a value is no JSON; left out")
		}
	}
	row.tell(taker, 0)
	if !row.row.HasStep {
		row.findStep()
	}
	return taker.Row(row.row)
}

// configItem takes one key of the config with all that is below it.
func configItem(item wandb.Item, taker Taker) {
	if item.Key == "_wandb" {
		return
	}
	text := string(item.JSON)
	if strings.HasPrefix(text, "{") {
		settings(item.Key+".", text, taker)
		return
	}
	if unquoted, err := strconv.Unquote(text); err == nil {
		text = unquoted
	}
	taker.Setting(item.Key, text)
}

func plainNumber(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }

// sideFile is a YAML config that stands beside a log: W&B's, in which each key has its value below, or
// a framework's own.
type sideFile struct{ path string }

// configNames are what such files are called.
var configNames = []string{"config.yaml", "config.yml"}

func fitsConfig(file string, _ []byte) bool { return slices.Contains(configNames, filepath.Base(file)) }

func openConfig(file, _ string) Source { return sideFile{file} }

func (s sideFile) Path() string { return s.path }

// configMax is the largest config that is read, in bytes.
const configMax = 8 << 20

func (s sideFile) Read(ctx context.Context, taker Taker) error {
	about, err := os.Stat(s.path)
	if err != nil {
		return err
	}
	if about.Size() > configMax {
		taker.Read(about.Size())
		taker.Warn(s.path, 0, fmt.Sprintf("the config is larger than %d MiB; left out", configMax>>20))
		return nil
	}
	return (&yamlFile{taker: taker, file: s.path}).read(ctx)
}
