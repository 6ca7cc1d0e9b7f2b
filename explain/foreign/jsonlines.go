package foreign

import (
	"bytes"
	"context"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// jsonLines is a file of one JSON object a line: a run's history as trackers export it, or metrics as
// frameworks write them themselves.
type jsonLines struct{ path string }

func fitsLines(file string, head []byte) bool {
	if strings.HasPrefix(filepath.Base(file), "wandb-") {
		return false // its summary and metadata hold no rows
	}
	switch strings.ToLower(filepath.Ext(file)) {
	case ".jsonl", ".ndjson":
		return true
	}
	head = bytes.TrimLeft(head, " \t\r\n")
	line, _, _ := bytes.Cut(head, []byte("\n"))
	return len(line) > 1 && line[0] == '{' && (line[1] == '"' || line[1] == '}') && bytes.HasSuffix(bytes.TrimRight(line, " \t\r"), []byte("}"))
}

func openLines(file, _ string) Source { return jsonLines{file} }

func (s jsonLines) Path() string { return s.path }

func (s jsonLines) Read(ctx context.Context, taker Taker) error {
	row := newRowReader(s.path)
	return Lines(ctx, s.path, taker, func(line []byte, number int64, whole bool) error {
		if len(bytes.TrimSpace(line)) == 0 {
			return nil
		}
		err := row.object(line)
		row.tell(taker, number)
		if err != nil {
			if !whole {
				taker.Warn(s.path, number, "the last line is cut off; left out")
			} else {
				taker.Warn(s.path, number, "a line is no JSON object; left out")
			}
			return nil
		}
		row.row.Line = number
		return taker.Row(row.row)
	})
}

// rowReader makes rows of JSON objects. The row is used again for the next.
type rowReader struct {
	row   Row
	keys  map[string]string // so that a key is one string, however many rows have it
	flat  flat
	timed int // how good the key is that the time is from
	// longKeys and many count what the row had beyond KeyMax and RowValuesMax.
	longKeys, many int64
}

func newRowReader(file string) *rowReader {
	r := &rowReader{row: Row{File: file, Values: map[string]float64{}}, keys: map[string]string{}}
	r.flat.number, r.flat.text = r.number, r.text
	r.flat.long = func() { r.longKeys++ }
	return r
}

// tell warns of what was left out of the row.
func (r *rowReader) tell(taker Taker, line int64) {
	if r.longKeys > 0 {
		taker.Warn(r.row.File, line, longKey)
	}
	if r.many > 0 {
		taker.Warn(r.row.File, line, manyValues)
	}
}

// stepKeys and timeKeys are what trackers and frameworks call a row's step and its clock.
var (
	stepKeys = []string{"_step", "step", "global_step", "Step"}
	timeKeys = []string{"_timestamp", "timestamp", "time", "wall_time", "Wall time"}
)

// begin empties the row.
func (r *rowReader) begin() {
	clear(r.row.Values)
	r.row.Step, r.row.HasStep, r.row.TimeS, r.timed, r.longKeys, r.many = 0, false, 0, len(timeKeys), 0, 0
}

// member takes one key's value, which is JSON.
func (r *rowReader) member(key string, value []byte) error {
	r.flat.rest = value
	if len(key) > KeyMax {
		return r.flat.longMember(0)
	}
	return r.flat.value([]byte(key), 0)
}

// object makes a row of a JSON object.
func (r *rowReader) object(line []byte) error {
	r.begin()
	r.flat.rest = line
	if first := bytes.TrimLeft(line, " \t"); len(first) == 0 || first[0] != '{' {
		return errJSON
	}
	if err := r.flat.read(); err != nil {
		return err
	}
	r.findStep()
	return nil
}

// findStep takes the first of the keys that count steps.
func (r *rowReader) findStep() {
	for _, key := range stepKeys {
		if value, there := r.row.Values[key]; there && finite(value) {
			r.row.Step, r.row.HasStep = int64(value), true
			return
		}
	}
}

// wrapped is below which key some write a row's values beside its step, as verl's file logger does.
const wrapped = "data."

func (r *rowReader) number(key []byte, value float64) {
	name, there := r.keys[string(key)]
	if _, known := r.row.Values[name]; !known && len(r.row.Values) >= RowValuesMax {
		r.many++
		return
	}
	if !there {
		name = strings.TrimPrefix(string(key), wrapped)
		if len(r.keys) < keysSeenMax {
			r.keys[string(key)] = name
		}
	}
	r.row.Values[name] = value
	r.time(name, value)
}

func (r *rowReader) time(name string, value float64) {
	i := slices.Index(timeKeys, name)
	if i < 0 || i >= r.timed || !finite(value) {
		return
	}
	const milliseconds = 1e11 // Unix seconds reach it in the year 5138
	if value > milliseconds {
		value /= 1000
	}
	r.row.TimeS, r.timed = value, i
}

// text takes what is a number or a date written as a text.
func (r *rowReader) text(key, value []byte) {
	const longest = 40
	if len(value) > longest || len(value) == 0 {
		return
	}
	if i := slices.Index(timeKeys, string(key)); i >= 0 {
		if at, err := time.Parse(time.RFC3339, string(value)); err == nil {
			r.time(string(key), float64(at.UnixNano())/1e9)
			return
		}
	}
	switch string(value) { // how W&B writes what JSON lacks
	case "NaN", "Infinity", "-Infinity":
		number, err := strconv.ParseFloat(string(value), 64)
		if err == nil {
			r.number(key, number)
		}
	}
}
