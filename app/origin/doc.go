// Package origin says which command made a run directory, so that no other one goes on with the run. It also has the address
// of the run's control plane.
package origin
