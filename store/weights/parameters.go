package weights

import (
	"fmt"
	"slices"

	"github.com/headway-rl/headway/internal/transformer"
	"github.com/headway-rl/headway/loop/port"
)

// Tensors views parameters as the tensors of a version, without copying.
func Tensors(p *transformer.Parameters) []port.Tensor {
	views, data := p.Tensors(), p.Data()
	tensors := make([]port.Tensor, len(views))
	for i, v := range views {
		tensors[i] = port.Tensor{Name: v.Name, Shape: v.Shape, Data: data[v.Offset : v.Offset+v.Elements()]}
	}
	return tensors
}

// Parameters copies the tensors of a version, which may lie in any order, into parameters of the
// given shape. A tensor that is missing, unknown or of another shape is an error: the version belongs
// to another model.
func Parameters(c transformer.Config, tensors []port.Tensor) (*transformer.Parameters, error) {
	p, err := transformer.ZeroParameters(c)
	if err != nil {
		return nil, err
	}
	views := p.Tensors()
	for i, v := range views {
		t, ok := named(tensors, i, v.Name)
		if !ok {
			return nil, fmt.Errorf("weights: the version has %d tensors and none that is called %q, want %d with one of shape %v; its model section differs",
				len(tensors), v.Name, len(views), v.Shape)
		}
		if !slices.Equal(t.Shape, v.Shape) || len(t.Data) != v.Elements() {
			return nil, fmt.Errorf("weights: the version has the tensor %q of shape %v with %d values, want shape %v; it was made with another model section",
				t.Name, t.Shape, len(t.Data), v.Shape)
		}
		copy(p.Data()[v.Offset:], t.Data)
	}
	for i, t := range tensors {
		known := i < len(views) && views[i].Name == t.Name || slices.ContainsFunc(views, func(v transformer.Tensor) bool { return v.Name == t.Name })
		if !known {
			return nil, fmt.Errorf("weights: the version has the tensor %q, which the model has not, want %d tensors; it was made with another model section",
				t.Name, len(views))
		}
	}
	return p, nil
}

// named finds a tensor, which is usually where it is expected.
func named(tensors []port.Tensor, expected int, name string) (port.Tensor, bool) {
	if expected < len(tensors) && tensors[expected].Name == name {
		return tensors[expected], true
	}
	i := slices.IndexFunc(tensors, func(t port.Tensor) bool { return t.Name == name })
	if i < 0 {
		return port.Tensor{}, false
	}
	return tensors[i], true
}
