// Package rendezvous brings the members of a collective together: it waits until trainer
// and engines are all there, tells each its rank offset and where to meet, and does it
// again under a new epoch when the membership changes. It moves no tensor.
package rendezvous
