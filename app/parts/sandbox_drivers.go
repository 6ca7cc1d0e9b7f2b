package parts

import (
	"cmp"
	"fmt"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/sandbox/bwrap"
	"github.com/headway-rl/headway/env/sandbox/e2b"
	sandboxkubernetes "github.com/headway-rl/headway/env/sandbox/kubernetes"
	"github.com/headway-rl/headway/env/sandbox/process"
	"github.com/headway-rl/headway/env/sandbox/runsc"
	"github.com/headway-rl/headway/env/sandbox/swerex"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/internal/kubernetes"
)

// DriverOf makes the driver of a document's sandboxes.
func DriverOf(cfg config.Config) (driver sandbox.Driver, err error) {
	s := cfg.Sandbox
	switch s.Driver {
	case "swerex":
		driver, err = swerexOf(s)
	case "e2b":
		driver, err = e2bOf(s)
	case "kubernetes":
		driver, err = sandboxkubernetes.New(sandboxkubernetes.Options{
			Cluster:   kubernetes.Cluster{Config: s.Kubernetes.Config, Context: s.Kubernetes.Context},
			Namespace: s.Kubernetes.Namespace, WarmPool: s.Kubernetes.WarmPool, RuntimeClass: s.Kubernetes.RuntimeClass, Boundary: operatorsBoundary(s),
		})
	default:
		driver, err = localDriver(s.Driver)
	}
	if err != nil {
		return nil, failure.Run("headway doctor says what is missing, and how to get it", "sandbox.driver %s: %w", s.Driver, err)
	}
	return driver, nil
}

// localDriver makes a driver whose sandboxes are on this machine, which has to have Linux.
func localDriver(name string) (sandbox.Driver, error) {
	switch name {
	case "process":
		return process.New("")
	case "bwrap":
		return bwrap.New("")
	case "runsc":
		return runsc.New(runsc.Options{})
	}
	return nil, fmt.Errorf("there is no driver of that name")
}

func swerexOf(s config.Sandbox) (sandbox.Driver, error) {
	key, err := SecretOf("sandbox.key_file", s.KeyFile)
	if err != nil {
		return nil, err
	}
	return swerex.New(swerex.Options{URLs: s.URLs, Key: key, Boxes: cmp.Or(s.ServerBoxes, 1), Boundary: operatorsBoundary(s)})
}

// e2bOf makes a driver whose boundary is what E2B says of its machines. The template is the image of each sandbox.
func e2bOf(s config.Sandbox) (sandbox.Driver, error) {
	key, err := SecretOf("sandbox.key_file", s.KeyFile)
	if err != nil {
		return nil, err
	}
	return e2b.New(e2b.Options{URL: s.URL, Key: key, User: s.E2B.User, Lifetime: config.Seconds(s.E2B.LifetimeS), Envd: s.E2B.Envd})
}

// operatorsBoundary is what the containers of others keep apart, as far as the document says.
func operatorsBoundary(s config.Sandbox) sandbox.Boundary {
	if s.Isolated {
		return sandbox.Boundary{Files: true, Processes: true, Network: true}
	}
	return sandbox.Boundary{Why: "what keeps its containers apart is not known here: write sandbox.isolated: true if they keep files, processes and network from all that matters"}
}
