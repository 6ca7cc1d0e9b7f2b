package dashboard

import (
	"encoding/json"
	"errors"
	"hash/fnv"
	"math"
	"reflect"
	"strconv"
)

// encodeJSON encodes a value. A number that JSON has no word for is null where there may be none, and 0 elsewhere.
func encodeJSON(v any) ([]byte, error) {
	body, err := json.Marshal(v)
	if _, is := errors.AsType[*json.UnsupportedValueError](err); !is {
		return body, err
	}
	return json.Marshal(finite(reflect.ValueOf(v)).Interface())
}

// finite copies a value with what is no number replaced.
func finite(v reflect.Value) reflect.Value {
	if !v.IsValid() {
		return v
	}
	out := reflect.New(v.Type()).Elem()
	switch v.Kind() {
	case reflect.Float32, reflect.Float64:
		if x := v.Float(); !math.IsNaN(x) && !math.IsInf(x, 0) {
			out.SetFloat(x)
		}
		return out
	case reflect.Pointer:
		if v.IsNil() {
			return out
		}
		if k := v.Elem().Kind(); k == reflect.Float32 || k == reflect.Float64 {
			if x := v.Elem().Float(); math.IsNaN(x) || math.IsInf(x, 0) {
				return out
			}
		}
		p := reflect.New(v.Type().Elem())
		p.Elem().Set(finite(v.Elem()))
		return p
	case reflect.Interface:
		if !v.IsNil() {
			out.Set(finite(v.Elem()))
		}
		return out
	}
	return finiteParts(v, out)
}

// finiteParts copies what is made of others.
func finiteParts(v, out reflect.Value) reflect.Value {
	out.Set(v)
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				out.Field(i).Set(finite(v.Field(i)))
			}
		}
	case reflect.Slice:
		if !v.IsNil() {
			out.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
			for i := range v.Len() {
				out.Index(i).Set(finite(v.Index(i)))
			}
		}
	case reflect.Array:
		for i := range v.Len() {
			out.Index(i).Set(finite(v.Index(i)))
		}
	case reflect.Map:
		if !v.IsNil() {
			out.Set(reflect.MakeMapWithSize(v.Type(), v.Len()))
			for _, key := range v.MapKeys() {
				out.SetMapIndex(key, finite(v.MapIndex(key)))
			}
		}
	}
	return out
}

// tagOf is the entity tag of a body.
func tagOf(body []byte) string {
	h := fnv.New64a()
	_, _ = h.Write(body)
	return `"` + strconv.FormatUint(h.Sum64(), 36) + `"`
}
