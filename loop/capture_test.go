package loop

import (
	"reflect"
	"testing"
)

// TestCloneSharesNothing fills every field of a state, and finds all of it again in a clone, at other addresses.
func TestCloneSharesNothing(t *testing.T) {
	var s state
	fill(reflect.ValueOf(&s).Elem())
	c := s.clone()
	apart(t, "state", reflect.ValueOf(s), reflect.ValueOf(c))
	s.Retries.pop()
	if c := s.clone(); !reflect.DeepEqual(c.Retries.all(), s.Retries.all()) {
		t.Errorf("of those that wait, %v are left, and a clone has %v", s.Retries.all(), c.Retries.all())
	}
}

// fill sets every number to 1, every slice to two of its elements, and every pointer to something new. What is not exported
// is a part of the list of those that wait, whose first entry is there.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		if w, ok := v.Addr().Interface().(*waiting); ok {
			w.push(retry{1, 1, 1, 1})
			w.push(retry{2, 2, 2, 2})
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0))
		fill(v.Index(1))
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(1)
	case reflect.Uint8, reflect.Uint64:
		v.SetUint(1)
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Int8:
		v.SetInt(1)
	default:
		panic("a state has a field of the kind " + v.Kind().String() + ": it needs a case here, and one in clone if it refers to something")
	}
}

// apart demands that two values are equal, and that they refer to nothing together.
func apart(t *testing.T, name string, a, b reflect.Value) {
	switch a.Kind() {
	case reflect.Struct:
		for i := range a.NumField() {
			apart(t, name+"."+a.Type().Field(i).Name, a.Field(i), b.Field(i))
		}
	case reflect.Array:
		for i := range a.Len() {
			apart(t, name, a.Index(i), b.Index(i))
		}
	case reflect.Slice:
		if a.Len() != b.Len() || a.Len() == 0 || a.Pointer() == b.Pointer() {
			t.Errorf("%s: %d entries and %d, at %#x and %#x", name, a.Len(), b.Len(), a.Pointer(), b.Pointer())
			return
		}
		for i := range a.Len() {
			apart(t, name, a.Index(i), b.Index(i))
		}
	case reflect.Pointer:
		if a.Pointer() == b.Pointer() {
			t.Errorf("%s is the same", name)
			return
		}
		apart(t, name, a.Elem(), b.Elem())
	default:
		if !a.Equal(b) {
			t.Errorf("%s is %v, and %v in the clone", name, a, b)
		}
	}
}
