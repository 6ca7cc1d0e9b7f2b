package parts

import (
	"fmt"

	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/sandbox/bwrap"
	plain "github.com/headway-rl/headway/env/sandbox/process"
	"github.com/headway-rl/headway/env/sandbox/runsc"
)

// localDriver makes a driver whose sandboxes are on this machine.
func localDriver(name string) (sandbox.Driver, error) {
	switch name {
	case "process":
		return plain.New("")
	case "bwrap":
		return bwrap.New("")
	case "runsc":
		return runsc.New(runsc.Options{})
	}
	return nil, fmt.Errorf("this program was built without it")
}
