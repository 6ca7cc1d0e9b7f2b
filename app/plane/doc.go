// Package plane runs a control plane: one writer of a run, whose engines, trainer and workers may be in other processes.
//
// [New] checks what can be checked without the run. [Plane.Serve] stands by until this process is the writer, recovers
// the run from its log, and serves it to its end.
package plane
