package theory

import (
	"encoding/json"
	"strconv"
)

// Figure is a number that may be unknown, because no closed form covers it. The
// zero Figure is unknown. A known Figure is always finite. In JSON an unknown
// Figure is null.
type Figure struct {
	value float64
	known bool
}

// Known returns a known figure.
func Known(value float64) Figure { return Figure{value, true} }

// Value returns the number and whether it is known.
func (f Figure) Value() (value float64, known bool) { return f.value, f.known }

// Or returns the number, or otherwise where it is unknown.
func (f Figure) Or(otherwise float64) float64 {
	if f.known {
		return f.value
	}
	return otherwise
}

// Format renders the number with so many decimals, "–" where it is unknown.
func (f Figure) Format(decimals int) string {
	if !f.known {
		return "–"
	}
	return strconv.FormatFloat(f.value, 'f', decimals, 64)
}

// MarshalJSON writes the number or null.
func (f Figure) MarshalJSON() ([]byte, error) {
	if !f.known {
		return []byte("null"), nil
	}
	return json.Marshal(f.value)
}

// UnmarshalJSON reads a number or null.
func (f *Figure) UnmarshalJSON(text []byte) error {
	var value *float64
	if err := json.Unmarshal(text, &value); err != nil {
		return err
	}
	*f = Figure{}
	if value != nil {
		*f = Known(*value)
	}
	return nil
}
