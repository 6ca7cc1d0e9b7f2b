package foreign

import "fmt"

// A file can be made so that few bytes of it ask for much memory. These bounds limit how much of any file is kept.
const (
	// KeyMax is the longest key that is read, in bytes, nested keys with all that is above them. Values under a longer
	// one are left out.
	KeyMax = 512
	// RowValuesMax is how many values a row has at most, and a table columns; further ones are left out.
	RowValuesMax = 1 << 14
)

var (
	longKey    = fmt.Sprintf("a key is longer than %d bytes; left out", KeyMax)
	manyValues = fmt.Sprintf("a row has more than %d values; those after them are left out", RowValuesMax)
)

// admits reports whether one more value may be kept of a row, and why not.
func admits(values map[string]float64, key string) (why string, ok bool) {
	if len(key) > KeyMax {
		return longKey, false
	}
	if len(values) < RowValuesMax {
		return "", true
	}
	_, there := values[key]
	return manyValues, there
}
