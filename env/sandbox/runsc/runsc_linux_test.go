package runsc_test

import (
	"testing"

	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/sandbox/runsc"
	"github.com/headway-rl/headway/env/sandbox/sandboxtest"
)

func subject() sandboxtest.Subject {
	return sandboxtest.Subject{New: func(t testing.TB, dir string) sandbox.Driver {
		driver, err := runsc.New(runsc.Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		return driver
	}}
}

func TestConformance(t *testing.T) { sandboxtest.Conformance(t, subject()) }

func TestIsolation(t *testing.T) {
	sandboxtest.Isolation(t, subject(), map[string]string{"gVisor": runsc.Version})
}
