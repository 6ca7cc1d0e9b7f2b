package main

import (
	"fmt"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/sandbox"
)

// driverOf makes the driver of a document's sandboxes.
func driverOf(cfg config.Config) (sandbox.Driver, error) {
	return nil, fmt.Errorf("sandbox.driver: %s is not built in", cfg.Sandbox.Driver)
}
