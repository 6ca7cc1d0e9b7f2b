package doctor

import (
	"fmt"
	"strings"
)

// Fleet is the outcome of looking for the service that starts engines.
type Fleet struct {
	// Driver of the fleet. Err says why it can start none, and Do what to do; empty where it can.
	Driver, Err, Do string
	// Where it would start them, in words. Notes are what should be otherwise.
	Where string
	Notes []string
}

const keyFleet = "fleet.driver"

// fleetKind is of the environment's checks: engines are a part of what rollouts are played with.
var fleetKind = Kind{
	Code: "fleet", Severities: []Severity{Error, Warning, Info}, Keys: []string{keyFleet},
	When:  "the fleet cannot start engines: its program is not there, its workload is not, or this account may not scale it; a warning where something should be otherwise; else where they are started",
	Known: "looking for the program, or asking the cluster what this account may do; nothing is started or scaled. `--no-probe` asks no cluster",
}

func (e *examination) fleetStarts() {
	if e.environment == nil || e.environment.Fleet == nil {
		return
	}
	f := e.environment.Fleet
	if f.Err != "" {
		found := e.add(Error, keyFleet, Asked)
		found.What = fmt.Sprintf("the fleet of driver %s can start no engine: %s", f.Driver, f.Err)
		found.Why = "the run would not begin, or stay with the engines it has"
		found.Do = f.Do
		return
	}
	if len(f.Notes) > 0 {
		found := e.add(Warning, keyFleet, Asked)
		found.What = fmt.Sprintf("the fleet's workload is not as it should be: %s", strings.Join(f.Notes, "; "))
		found.Why = "engines come late, or under another number than the run knows"
		found.Do = "change the workload"
	}
	if f.Where != "" {
		found := e.add(Info, keyFleet, Asked)
		found.What = fmt.Sprintf("the fleet of driver %s starts engines: %s", f.Driver, f.Where)
	}
}
