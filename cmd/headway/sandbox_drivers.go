package main

import (
	"cmp"
	"fmt"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/sandbox"
	"github.com/headway-rl/headway/sandbox/swerex"
)

// driverOf makes the driver of a document's sandboxes.
func driverOf(cfg config.Config) (driver sandbox.Driver, err error) {
	s := cfg.Sandbox
	switch s.Driver {
	case "swerex":
		driver, err = swerexOf(s)
	default:
		driver, err = localDriver(s.Driver)
	}
	if err != nil {
		return nil, runError("headway doctor says what is missing, and how to get it", "sandbox.driver %s: %w", s.Driver, err)
	}
	return driver, nil
}

func swerexOf(s config.Sandboxes) (sandbox.Driver, error) {
	key, err := secretOf("sandbox.key_file", s.KeyFile)
	if err != nil {
		return nil, err
	}
	opt := swerex.Options{URLs: s.URLs, Key: key, Boxes: cmp.Or(s.ServerBoxes, 1)}
	if s.Isolated {
		opt.Boundary = sandbox.Boundary{Files: true, Processes: true, Network: true}
	} else {
		opt.Boundary.Why = fmt.Sprintf("whether the servers at %v run in containers is not known: sandbox.isolated says so", s.URLs)
	}
	return swerex.New(opt)
}
