package weights

import (
	"fmt"
	"slices"

	"github.com/headway-rl/headway/live"
	"github.com/headway-rl/headway/transformer"
)

// Tensors views parameters as the tensors of a version, without copying.
func Tensors(p *transformer.Parameters) []live.Tensor {
	views, data := p.Tensors(), p.Data()
	tensors := make([]live.Tensor, len(views))
	for i, v := range views {
		tensors[i] = live.Tensor{Name: v.Name, Shape: v.Shape, Data: data[v.Offset : v.Offset+v.Elements()]}
	}
	return tensors
}

// Parameters copies the tensors of a version into parameters of the given
// shape. A tensor that is missing, unknown or of another shape is an error: the
// version belongs to another model.
func Parameters(c transformer.Config, tensors []live.Tensor) (*transformer.Parameters, error) {
	p, err := transformer.ZeroParameters(c)
	if err != nil {
		return nil, err
	}
	views := p.Tensors()
	for i, v := range views {
		if i >= len(tensors) {
			return nil, fmt.Errorf("weights: the version has %d tensors, want %d: %q of shape %v is missing; it was made with another model section",
				len(tensors), len(views), v.Name, v.Shape)
		}
		t := tensors[i]
		if t.Name != v.Name || !slices.Equal(t.Shape, v.Shape) || len(t.Data) != v.Elements() {
			return nil, fmt.Errorf("weights: the version has the tensor %q of shape %v with %d values, want %q of shape %v; it was made with another model section",
				t.Name, t.Shape, len(t.Data), v.Name, v.Shape)
		}
		copy(p.Data()[v.Offset:], t.Data)
	}
	if len(tensors) > len(views) {
		return nil, fmt.Errorf("weights: the version has the tensor %q, which the model has not, want %d tensors; it was made with another model section",
			tensors[len(views)].Name, len(views))
	}
	return p, nil
}
