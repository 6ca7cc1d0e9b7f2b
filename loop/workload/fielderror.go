package workload

import (
	"fmt"
	"math"
	"strconv"
)

// FieldError says that one field of a specification cannot be used. Field is the key as a config
// file writes it, without the path of the section it is in. A caller that knows file, line and
// section adds them.
type FieldError struct {
	Field   string // the key, such as mean_tokens
	Value   any    // what was given
	Allowed string // the accepted values, and the remedy
}

// Error names the field, the value and the allowed values.
func (e *FieldError) Error() string {
	if s, ok := e.Value.(string); ok {
		return fmt.Sprintf("%s: %q is not allowed: want %s", e.Field, s, e.Allowed)
	}
	return fmt.Sprintf("%s: %v is not allowed: want %s", e.Field, e.Value, e.Allowed)
}

// Fault returns the error by its parts, each in words.
func (e *FieldError) Fault() (key, value, allowed string) {
	return e.Field, fmt.Sprint(e.Value), e.Allowed
}

// inRange refuses a number outside [low, high]; NaN is outside every range.
func inRange(field string, value, low, high float64, unit string) error {
	if value >= low && value <= high {
		return nil
	}
	return &FieldError{field, value, "a number from " + plain(low) + " to " + plain(high) + unit}
}

// plain writes a number without an exponent.
func plain(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

// unused refuses a field that the chosen kind would silently ignore.
func unused(kind, field string, set bool, value any) error {
	if !set {
		return nil
	}
	return &FieldError{field, value, fmt.Sprintf("nothing: kind %s has no such parameter, remove it", kind)}
}

// finite reports whether x is an ordinary number.
func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
