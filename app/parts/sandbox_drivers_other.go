//go:build !linux

package parts

import (
	"fmt"

	"github.com/headway-rl/headway/env/sandbox"
)

// localDriver refuses: sandboxes on this machine are made of what Linux has.
func localDriver(name string) (sandbox.Driver, error) {
	return nil, fmt.Errorf("%s makes sandboxes on Linux alone: use kubernetes, e2b or swerex here", name)
}
