package sink

import (
	"encoding/json"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/steps"
)

// filled gives every number of a struct, and of those within it, a value of its own, and every pointer and
// map a value, so that no field of a line can be forgotten.
func filled(v reflect.Value, next *float64) {
	*next += 1.25
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		filled(v.Elem(), next)
	case reflect.Struct:
		for i := range v.NumField() {
			filled(v.Field(i), next)
		}
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]float64{"kl (nats)": *next, "deep/er": -*next}))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	case reflect.Float64:
		v.SetFloat(*next)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*next))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.String:
		v.SetString("a word")
	}
}

// numbersOf are the numbers of a decoded JSON object by name: what metrics.jsonl says of a line.
func numbersOf(prefix string, object map[string]any, out map[string]float64) {
	for name, value := range object {
		switch v := value.(type) {
		case float64:
			out[prefix+name] = v
		case bool:
			out[prefix+name] = 0
			if v {
				out[prefix+name] = 1
			}
		case map[string]any:
			numbersOf(prefix+name+"/", v, out)
		}
	}
}

// The figures of a step are the numbers of its line in metrics.jsonl, by the same names and no others.
func TestFiguresAreThoseOfTheLine(t *testing.T) {
	var full, empty steps.Line
	next := 0.0
	filled(reflect.ValueOf(&full).Elem(), &next)
	bare := full
	bare.Control, bare.Metrics, bare.HeldOutAccuracy, bare.HeldOutStep, bare.TrainerAbsentS = &steps.Control{State: "settling"}, map[string]float64{}, nil, nil, 0
	for name, line := range map[string]*steps.Line{"full": &full, "bare": &bare, "empty": &empty} {
		text, err := json.Marshal(line)
		if err != nil {
			t.Fatal(err)
		}
		var object map[string]any
		if err := json.Unmarshal(text, &object); err != nil {
			t.Fatal(err)
		}
		want := map[string]float64{}
		numbersOf("", object, want)
		delete(want, "step")
		s, got := StepOf(line, time.Unix(1000, 0)), map[string]float64{}
		for _, f := range s.Figures {
			got[f.Name] = f.Value
		}
		if !maps.Equal(got, want) || len(got) != len(s.Figures) || s.Step != int64(line.Step) || !s.Time.Equal(time.Unix(1000, 0)) {
			t.Errorf("%s: step %d has\n%v, and its line\n%v", name, s.Step, got, want)
		}
		if !slices.IsSortedFunc(s.Figures, func(a, b Figure) int { return strings.Compare(a.Name, b.Name) }) {
			t.Errorf("%s: the figures are not in the order of their names: %v", name, s.Figures)
		}
	}
}

func TestFiguresAreFinite(t *testing.T) {
	accuracy := math.Inf(1)
	s := StepOf(&steps.Line{Step: loop.Version(3), Reward: math.NaN(), Metrics: map[string]float64{"kl": math.Inf(-1), "loss": 2}, HeldOutAccuracy: &accuracy}, time.Time{})
	for _, f := range s.Figures {
		if f.Name == "reward" || f.Name == "metrics/kl" || f.Name == "held_out_accuracy" {
			t.Errorf("%s is %v", f.Name, f.Value)
		}
	}
	if !slices.Contains(s.Figures, Figure{"metrics/loss", 2}) {
		t.Errorf("the finite one beside them is not in %v", s.Figures)
	}
}
