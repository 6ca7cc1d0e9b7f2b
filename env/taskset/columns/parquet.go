package columns

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// rowsAtOnce is how many rows are read at once.
const rowsAtOnce = 256

// Read reads a Parquet file of any schema. It calls row with each row as the JSON object that it stands for, or with why
// it stands for none. It ends where row wants no more. Binary columns that are no text become base64; times and dates
// stay the numbers that they are stored as.
func Read(f io.ReaderAt, size int64, row func(object []byte, err error) (more bool)) (err error) {
	defer func() {
		if broken := recover(); broken != nil { // the library's answer to some broken files
			err = fmt.Errorf("it is Parquet, and broken: %v", broken)
		}
	}()
	if err := checkFooter(f, size); err != nil {
		return fmt.Errorf("it is Parquet, and broken: %w", err)
	}
	file, err := parquet.OpenFile(f, size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
	if err != nil {
		return fmt.Errorf("it is Parquet, and broken: %w", err)
	}
	reader := parquet.NewGenericReader[any](file)
	defer reader.Close()
	schema := file.Schema()
	rows := make([]any, rowsAtOnce)
	for n := 0; ; {
		count, err := reader.Read(rows)
		for _, read := range rows[:count] {
			if n++; !row(object(schema, read)) {
				return nil
			}
		}
		clear(rows)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("it cannot be read after row %d: %w", n, err)
		}
	}
}

// object is the JSON object of a row.
func object(schema parquet.Node, row any) ([]byte, error) {
	plain, err := plainValue(schema, row)
	if err != nil {
		return nil, err
	}
	return json.Marshal(plain)
}

// checkFooter refuses a file whose last bytes say that its footer is longer than the file, which the library would
// make room for: up to 4 GiB.
func checkFooter(f io.ReaderAt, size int64) error {
	const around = int64(len("PAR1") + 4 + len("PAR1")) // the footer stands before its length and the second mark
	if size < around {
		return fmt.Errorf("it has %d bytes: want %d or more", size, around)
	}
	var length [4]byte
	if _, err := f.ReadAt(length[:], size-8); err != nil {
		return err
	}
	if says := int64(binary.LittleEndian.Uint32(length[:])); says > size-around {
		return fmt.Errorf("its footer is to have %d bytes, and the file has %d", says, size)
	}
	return nil
}

// plainValue makes what the library read of a node into what JSON can say. Nulls of structs are left out: the
// columns of a struct are those of all rows, so most of them are of other rows.
func plainValue(node parquet.Node, value any) (any, error) {
	switch v := value.(type) {
	case map[string]any:
		made := make(map[string]any, len(v))
		for name, inner := range v {
			plain, err := plainValue(fieldOf(node, name), inner)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			if plain != nil {
				made[name] = plain
			}
		}
		return made, nil
	case []any:
		made := make([]any, len(v))
		for i, inner := range v {
			plain, err := plainValue(elementOf(node), inner)
			if err != nil {
				return nil, fmt.Errorf("%d: %w", i+1, err)
			}
			made[i] = plain
		}
		return made, nil
	case string:
		return plainText(node, v)
	case []byte:
		return plainText(node, string(v))
	case int64:
		if isUnsigned(node) {
			return uint64(v), nil // the library reads it into a signed one
		}
		return v, nil
	case float64:
		return finite(v), nil
	case float32:
		return finite(float64(v)), nil
	}
	return value, nil
}

// finite is nil for what JSON has no number for.
func finite(v float64) any {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return v
}

// plainText keeps text, which must be UTF-8; a column of bytes that are none is base64.
func plainText(node parquet.Node, s string) (any, error) {
	if utf8.ValidString(s) {
		return s, nil
	}
	if node != nil && node.Leaf() && isLogical[*format.StringType](node) {
		return nil, errors.New("the text is no UTF-8")
	}
	return base64.StdEncoding.EncodeToString([]byte(s)), nil
}

// isLogical reports whether a node is annotated as a type.
func isLogical[T format.LogicalTypeValue](node parquet.Node) bool {
	logical := node.Type().LogicalType()
	if logical == nil {
		return false
	}
	_, is := logical.Value.(T)
	return is
}

// isUnsigned reports whether a node is of whole numbers from 0 up.
func isUnsigned(node parquet.Node) bool {
	if node == nil || !node.Leaf() || !isLogical[*format.IntType](node) {
		return false
	}
	return !node.Type().LogicalType().Value.(*format.IntType).IsSigned
}

// fieldOf is the node of a struct's member or of a map's values; nil where it is not clear.
func fieldOf(node parquet.Node, name string) parquet.Node {
	if node == nil || node.Leaf() {
		return nil
	}
	if isLogical[*format.MapType](node) {
		return fieldOf(onlyField(node), "value")
	}
	for _, f := range node.Fields() {
		if f.Name() == name {
			return f
		}
	}
	return nil
}

// elementOf is the node of a list's elements; nil where it is not clear.
func elementOf(node parquet.Node) parquet.Node {
	if node == nil || node.Leaf() || !isLogical[*format.ListType](node) {
		return node // a repeated field: its elements are like itself
	}
	return onlyField(onlyField(node))
}

func onlyField(node parquet.Node) parquet.Node {
	if node == nil || node.Leaf() || len(node.Fields()) == 0 {
		return nil
	}
	return node.Fields()[0]
}
