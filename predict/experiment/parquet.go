package experiment

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"strconv"

	"github.com/parquet-go/parquet-go"
)

// parquetRowsMax is how many settings a row group holds: memory grows with it, and
// not with the grid.
const parquetRowsMax = 10_000

// Parquet writes a Parquet file. It is written under another name and gets its
// own once it is complete, because without its end it cannot be read.
type Parquet struct {
	path   string
	file   *os.File
	writer *parquet.GenericWriter[any]
	mark   string
	accept bool
	// numeric says which of the grid's keys have numbers alone for values.
	numeric []bool
	rows    int
	row     parquet.Row
}

// ParquetOptions says how settings are written to a Parquet file.
type ParquetOptions struct {
	// Mark names the experiment in every row, version the program in the file.
	Mark, Version string
	// Accept writes means that have not settled.
	Accept bool
}

// NewParquet begins a file that gets its path as its name once it is complete.
func NewParquet(path string, file *os.File, g *Grid, r ParquetOptions) *Parquet {
	w := &Parquet{path: path, file: file, mark: r.Mark, accept: r.Accept}
	for i := range g.axes {
		w.numeric = append(w.numeric, g.axes[i].isNumeric())
	}
	options := []parquet.WriterOption{w.schema(g), parquet.CreatedBy("headway", r.Version, "")}
	for i := range columns {
		options = append(options, parquet.KeyValueMetadata(columns[i].name, columns[i].doc))
	}
	w.writer = parquet.NewGenericWriter[any](file, options...)
	return w
}

// isNumeric reports whether every value of an axis is a number.
func (a *axis) isNumeric() bool {
	for _, p := range a.parts {
		if p.text == "" {
			continue
		}
		if v, err := strconv.ParseFloat(p.text, 64); err != nil || !isFiniteNumber(v) {
			return false
		}
	}
	return true
}

// parquetTypes are the columns' types in a file.
var parquetTypes = map[columnKind]reflect.Type{
	numberColumn: reflect.TypeFor[*float64](), wholeColumn: reflect.TypeFor[*int64](), textColumn: reflect.TypeFor[*string](), booleanColumn: reflect.TypeFor[*bool](),
}

// schema lists the columns in their order; every one may be empty. It goes by way of
// a struct type, whose fields keep their order.
func (w *Parquet) schema(g *Grid) *parquet.Schema {
	var fields []reflect.StructField
	add := func(name string, k columnKind) {
		fields = append(fields, reflect.StructField{Name: fmt.Sprintf("Column%d", len(fields)), Type: parquetTypes[k],
			Tag: reflect.StructTag(fmt.Sprintf(`parquet:"%s,optional,zstd"`, name))})
	}
	for i := range g.axes {
		if w.numeric[i] {
			add(g.axes[i].key, numberColumn)
		} else {
			add(g.axes[i].key, textColumn)
		}
	}
	add("experiment", textColumn)
	for i := range columns {
		add(columns[i].name, columns[i].kind)
	}
	return parquet.NewSchema("grid", parquet.SchemaOf(reflect.New(reflect.StructOf(fields)).Interface()))
}

// Write writes a setting.
func (w *Parquet) Write(p *Point) error {
	w.row = w.row[:0]
	for i, o := range p.set {
		var value any = o.value
		if w.numeric[i] {
			v, err := strconv.ParseFloat(o.value, 64)
			if err != nil {
				return err
			}
			value = v
		}
		w.put(value)
	}
	w.put(w.mark)
	for i := range columns {
		w.put(columns[i].of(p, w.accept))
	}
	if _, err := w.writer.WriteRows([]parquet.Row{w.row}); err != nil {
		return err
	}
	if w.rows++; w.rows%parquetRowsMax == 0 {
		return w.writer.Flush()
	}
	return nil
}

// put appends the row's next value.
func (w *Parquet) put(value any) {
	column := len(w.row)
	v := parquet.NullValue().Level(0, 0, column)
	if value != nil {
		v = parquet.ValueOf(value).Level(0, 1, column)
	}
	w.row = append(w.row, v)
}

// Flush has what was written so far outlive the process.
func (w *Parquet) Flush() error { return nil } // nothing could be read of it yet

// Close ends the file; failed says that it is not complete.
func (w *Parquet) Close(failed bool) error {
	if failed {
		return errors.Join(w.file.Close(), os.Remove(w.path+".part"))
	}
	if err := errors.Join(w.writer.Close(), w.file.Close()); err != nil {
		return err
	}
	return os.Rename(w.path+".part", w.path)
}
