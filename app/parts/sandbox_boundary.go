package parts

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/internal/failure"
)

// Drivers by where their sandboxes are and what they need. localBoundaries are boundaries on Linux alone.
var (
	localBoundaries = []string{"bwrap", "runsc"}
	localDrivers    = append([]string{"process"}, localBoundaries...)
)

// unbounded is how a document says that there is no boundary.
const unbounded = "sandbox: {driver: process, boundary: none}"

// UsableDriver is the driver of a document whose run executes code of the policy. Its sandboxes can be made here, and
// are a boundary or the document says sandbox.boundary: none. Every other document is refused, with the key to change.
func UsableDriver(ctx context.Context, cfg config.Config) (sandbox.Driver, sandbox.Boundary, error) {
	return usableDriver(ctx, cfg, host{runtime.GOOS, DriverOf})
}

// host is where sandboxes are made.
type host struct {
	goos     string
	driverOf func(config.Config) (sandbox.Driver, error)
}

func usableDriver(ctx context.Context, cfg config.Config, on host) (sandbox.Driver, sandbox.Boundary, error) {
	s := cfg.Sandbox
	local := slices.Contains(localDrivers, s.Driver)
	refuse := func(format string, args ...any) (sandbox.Driver, sandbox.Boundary, error) {
		why := fmt.Sprintf(format, args...)
		subject := "" // the value that the document gives
		if !cfg.Given("sandbox.driver") {
			subject = "the default " + s.Driver + " "
		}
		err := cfg.Refuse("sandbox.driver", fmt.Sprintf(subject+"makes no boundary here for the code of the policy, which %s runs: %s", cfg.RunsCode(), why), "")
		return nil, sandbox.Boundary{}, failure.Usage(on.remedy(ctx, cfg), "%w", err)
	}
	switch {
	case local && on.goos != "linux":
		return refuse("it needs Linux, and this is %s", on.goos)
	case s.Driver == "process" && s.Boundary != "none":
		return refuse("plain processes have all rights of this user")
	}
	driver, err := on.driverOf(cfg)
	if err != nil {
		return nil, sandbox.Boundary{}, err
	}
	boundary, err := driver.Check(ctx)
	switch {
	case err != nil && local:
		return refuse("%v", err)
	case err != nil:
		return nil, sandbox.Boundary{}, failure.Run("headway doctor says what is missing, and how to get it", "sandbox.driver %s: %w", s.Driver, err)
	case !boundary.Secure() && s.Boundary != "none":
		return refuse("%s", cmp.Or(boundary.Why, "files, processes or network are shared with the host"))
	}
	return driver, boundary, nil
}

// remedy says what to do on a host where the driver of a document is no boundary.
func (on host) remedy(ctx context.Context, cfg config.Config) string {
	const elsewhere = "sandbox.driver swerex, kubernetes or e2b, whose sandboxes are elsewhere"
	driver := cfg.Sandbox.Driver
	if on.goos != "linux" {
		return "name " + elsewhere + ", or run headway on Linux, in a virtual machine or a container. No driver of this machine's own can run here, with or without a boundary"
	}
	if !slices.Contains(localDrivers, driver) {
		return fmt.Sprintf("to run it without a boundary, write sandbox: {driver: %s, boundary: none}", driver)
	}
	way := "install bubblewrap (apt-get install bubblewrap) and name sandbox.driver bwrap"
	if here := on.boundariesHere(ctx, cfg); len(here) > 0 {
		way = "name sandbox.driver " + strings.Join(here, " or ") + ", which makes sandboxes here"
	} else if driver == "bwrap" {
		way = "install it"
	}
	return way + ", or name " + elsewhere + ". To give what the policy writes all rights of this user, write " + unbounded
}

// boundariesHere names the other local drivers that make sandboxes here.
func (on host) boundariesHere(ctx context.Context, cfg config.Config) (here []string) {
	for _, name := range localBoundaries {
		if name == cfg.Sandbox.Driver {
			continue
		}
		other := cfg
		other.Sandbox.Driver = name
		driver, err := on.driverOf(other)
		if err != nil {
			continue
		}
		if boundary, err := driver.Check(ctx); err == nil && boundary.Secure() {
			here = append(here, name)
		}
	}
	return here
}

// partial says what a boundary lacks here, and is empty where it holds whole. That a kernel is shared is no lack:
// docs/sandboxes.md says so of the driver.
func partial(b sandbox.Boundary) string {
	whole := b.Memory && b.CPU && b.ProcessCount && b.Disk && b.FileCount
	switch {
	case !b.Secure():
		return "no boundary, as sandbox.boundary says. " + b.Why
	case !whole:
		return "the boundary holds, and not every limit does. " + b.Why
	}
	return ""
}
