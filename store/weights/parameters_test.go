package weights

import (
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/internal/transformer"
	"github.com/headway-rl/headway/loop/port"
)

func TestParametersComeBackFromDisk(t *testing.T) {
	c := transformer.Config{Vocabulary: 9, Width: 8, Heads: 2}.WithDefaults()
	p, err := transformer.NewParameters(c, 4)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Publish(t.Context(), port.Publication{Version: 0, Model: Tensors(p)}); err != nil {
		t.Fatal(err)
	}
	tensors, err := s.Model(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	q, err := Parameters(c, tensors)
	if err != nil || !slices.Equal(p.Data(), q.Data()) {
		t.Fatalf("the parameters changed on disk: %v", err)
	}
	q.Data()[0]++
	if tensors[0].Data[0] == q.Data()[0] {
		t.Error("the parameters share memory with the version they came from")
	}
	wider := c
	wider.Width = 16
	twice := slices.Clone(tensors)
	twice[0] = twice[1]
	for name, try := range map[string]struct {
		config  transformer.Config
		tensors []port.Tensor
	}{
		"another shape": {wider, tensors},
		"one missing":   {c, tensors[:len(tensors)-1]},
		"one too many":  {c, append(slices.Clone(tensors), port.Tensor{Name: "extra", Shape: []int{0}})},
		"one twice":     {c, twice},
	} {
		if _, err := Parameters(try.config, try.tensors); err == nil || !strings.Contains(err.Error(), "want") {
			t.Errorf("%s gives %v, want an error that says what was expected", name, err)
		}
	}
}

// A trainer of its own writes the tensors in an order of its own.
func TestParametersInAnyOrder(t *testing.T) {
	c := transformer.Config{Vocabulary: 9, Width: 8, Heads: 2}.WithDefaults()
	p, err := transformer.NewParameters(c, 7)
	if err != nil {
		t.Fatal(err)
	}
	tensors := Tensors(p)
	slices.Reverse(tensors)
	got, err := Parameters(c, tensors)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.Data(), p.Data()) {
		t.Error("tensors in another order give other parameters")
	}
}
