package port_test

import (
	"testing"

	"github.com/headway-rl/headway/loop/port"
)

type plain struct{ port.Engine }

type paced struct {
	port.Engine
	steps int64
}

func (p paced) TakePace() port.Pace { return port.Pace{Steps: p.steps} }

type wrapper struct{ port.Engine }

func (w wrapper) Inner() any { return w.Engine }

type pacedWrapper struct{ wrapper }

func (pacedWrapper) TakePace() port.Pace { return port.Pace{Steps: 9} }

// As finds the nearest port that has the interface, behind any number of wrappers and no other types.
func TestAs(t *testing.T) {
	for _, c := range []struct {
		name  string
		of    any
		steps int64 // 0 for none
	}{
		{"nothing", nil, 0},
		{"an engine without", plain{}, 0},
		{"an engine with", paced{steps: 5}, 5},
		{"behind two wrappers", wrapper{wrapper{paced{steps: 5}}}, 5},
		{"behind wrappers that have none", wrapper{wrapper{plain{}}}, 0},
		{"a wrapper's own before the inner one", wrapper{pacedWrapper{wrapper{paced{steps: 5}}}}, 9},
		{"a type that does not say what it wraps", plain{paced{steps: 5}}, 0},
	} {
		found, ok := port.As[port.Paced](c.of)
		if ok != (c.steps != 0) {
			t.Errorf("%s: found %t", c.name, ok)
		} else if ok && found.TakePace().Steps != c.steps {
			t.Errorf("%s: the wrong one: %v", c.name, found)
		}
	}
}
