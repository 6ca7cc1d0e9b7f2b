package protocol

import (
	"fmt"
	"reflect"
)

// KindLabel says what JSON a field of a Go type wants, for the refusal of a body that has another.
func KindLabel(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return fmt.Sprintf("an integer of %d bits", t.Bits())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return fmt.Sprintf("an integer of %d bits that is not negative", t.Bits())
	case reflect.Float32:
		return "a number of single precision, at most 3.4e38"
	case reflect.Float64:
		return "a number"
	case reflect.String:
		return "a text"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "a list"
	}
	return "an object"
}
