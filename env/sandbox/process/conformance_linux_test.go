package process

import (
	"testing"

	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/sandbox/sandboxtest"
)

func subject() sandboxtest.Subject {
	return sandboxtest.Subject{New: func(t testing.TB, dir string) sandbox.Driver {
		d, err := New(dir)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}}
}

func TestConformance(t *testing.T) { sandboxtest.Conformance(t, subject()) }
