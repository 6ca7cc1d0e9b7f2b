package probe

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/config"
	programs "github.com/headway-rl/headway/engine/fleet/process"
	"github.com/headway-rl/headway/predict/doctor"
)

// ExamineFleet adds to a case whether the document's fleet could start an engine. Nothing is started, and
// without probing no cluster is asked.
func ExamineFleet(ctx context.Context, document config.Config, probe bool, examined *doctor.Case) {
	var found *doctor.Fleet
	switch document.Fleet.Driver {
	case "process":
		found = lookForProgram(document.Fleet)
	case "kubernetes":
		if probe {
			found = askCluster(ctx, document)
		}
	}
	if found == nil {
		return
	}
	examined.Environment = cmp.Or(examined.Environment, &doctor.EnvironmentFound{})
	found.Driver = document.Fleet.Driver
	examined.Environment.Fleet = found
}

func lookForProgram(f config.Fleet) *doctor.Fleet {
	path, err := programs.LookPath(f.Command)
	if err != nil {
		return &doctor.Fleet{Err: err.Error(), Do: "correct the first word of fleet.command, or install the program"}
	}
	where := fmt.Sprintf("%s on this machine, %d to %d of them", path, f.Least, f.Most)
	if len(f.CellCommand) > 0 {
		cell, err := programs.LookPath(f.CellCommand)
		if err != nil {
			return &doctor.Fleet{Err: err.Error(), Do: "correct the first word of fleet.cell_command, or install the program"}
		}
		where += ", and cells by " + cell
	}
	return &doctor.Fleet{Where: where}
}

func askCluster(ctx context.Context, document config.Config) *doctor.Fleet {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	driver, err := parts.ScaledWorkload(document)
	if err != nil {
		return &doctor.Fleet{Err: err.Error(), Do: "correct fleet.config, fleet.context or fleet.workload"}
	}
	found, err := driver.Check(ctx)
	switch {
	case len(found.Missing) > 0:
		return &doctor.Fleet{Err: "this account may not " + strings.Join(found.Missing, ", "), Do: "give it the Role in deploy/kubernetes/fleet.yaml"}
	case err != nil:
		return &doctor.Fleet{Err: err.Error(), Do: "deploy/kubernetes/fleet.yaml has a workload and the rights"}
	}
	return &doctor.Fleet{Notes: found.Notes, Where: fmt.Sprintf("%s in namespace %s of Kubernetes %s, which has %d replicas now", document.Fleet.Workload, found.Namespace, found.Server, found.Replicas)}
}
