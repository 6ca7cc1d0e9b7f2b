package sink

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/headway-rl/headway/observe/steps"
)

// StepOf is a line of metrics.jsonl as sinks take it. Every number and truth value of the line is a figure
// under its JSON name. One within an object has the name of the object and a slash before it. Texts, lists and
// numbers that are not finite are left out, and so is what the line leaves out of the file.
func StepOf(line *steps.Line, at time.Time) Step {
	s := Step{Step: int64(line.Step), Time: at}
	s.add("", reflect.ValueOf(line))
	s.Figures = slices.DeleteFunc(s.Figures, func(f Figure) bool { return f.Name == "step" || math.IsNaN(f.Value) || math.IsInf(f.Value, 0) })
	slices.SortFunc(s.Figures, func(a, b Figure) int { return strings.Compare(a.Name, b.Name) })
	return s
}

// add adds a number under a name, and the numbers within a struct, by its JSON tags, or a map.
func (s *Step) add(name string, v reflect.Value) {
	within := strings.TrimPrefix(name+"/", "/")
	switch kind := v.Kind(); {
	case kind == reflect.Pointer:
		s.add(name, v.Elem())
	case kind == reflect.Struct:
		for field, value := range v.Fields() {
			if tag, options, _ := strings.Cut(field.Tag.Get("json"), ","); options != "omitempty" || !value.IsZero() {
				s.add(within+tag, value)
			}
		}
	case kind == reflect.Map:
		for key, value := range v.Seq2() {
			s.add(within+key.String(), value)
		}
	case v.CanFloat():
		s.Figures = append(s.Figures, Figure{name, v.Float()})
	case v.CanInt():
		s.Figures = append(s.Figures, Figure{name, float64(v.Int())})
	case kind == reflect.Bool && v.Bool():
		s.Figures = append(s.Figures, Figure{name, 1})
	case kind == reflect.Bool:
		s.Figures = append(s.Figures, Figure{name, 0})
	}
}
