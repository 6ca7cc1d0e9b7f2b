package foreign

import (
	"context"
)

// Row is what a log says at one moment: values by key. It is valid until the
// function that it was handed to returns.
type Row struct {
	// File and Line are where it stands; Line is 0 where lines have no meaning.
	File string
	Line int64
	// Step is the log's own count, as W&B's _step; a framework may know a key that is a better one.
	Step    int64
	HasStep bool
	// TimeS is Unix time in seconds, or since some moment of the run; 0 where there is none.
	TimeS float64
	// Printed says that it is what a console printed: rounded, and its time of an unknown zone. Both count only
	// where no other file says the same.
	Printed bool
	// Values are numbers by key, nested keys joined by dots; booleans are 0 and 1.
	Values map[string]float64
}

// Taker is what a Source is read into. Its methods are called from one goroutine, in
// the order of the file.
type Taker interface {
	// Row takes a row. An error ends the reading and is returned by Source.Read.
	Row(Row) error
	// Rollout takes a single rollout.
	Rollout(Rollout)
	// Setting takes one setting of the run's config, nested keys joined by dots. Later ones win.
	Setting(key, value string)
	// Warn takes something wrong with the file. Warnings of one text are counted together, so the
	// text holds no figures of the place.
	Warn(file string, line int64, text string)
	// Read says how many further bytes of the file have been read.
	Read(bytes int64)
}

// Source is a file that holds a log, or a part of one.
type Source interface {
	// Path is the file.
	Path() string
	// Read hands everything in the file to a taker, as a stream. Torn or malformed parts are a warning. An error is a
	// file that cannot be read at all, the taker's error or the context's.
	Read(ctx context.Context, taker Taker) error
}

// ValueMax is the longest text of a setting that is kept, in bytes; SettingsMax how many settings.
const (
	ValueMax    = 4096
	SettingsMax = 1 << 14
)
