package reproduce

import (
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/drive/sim"
)

// Options say how much is simulated, and by whom.
type Options struct {
	// Quick makes short simulations, seconds in all: it shows that everything works,
	// and its simulated figures are no results.
	Quick bool
	// Simulation is a document's simulation. The command line simulates by it too, so that a case's document gives the
	// same figures everywhere. Cases that simulate documents fail without it.
	Simulation func(document config.Config) (sim.Config, error)
	// Said, if not nil, is called before every case and as simulations end, by one
	// goroutine at a time.
	Said func(name string, done, all int)
}
