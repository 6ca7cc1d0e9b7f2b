// Package runsc makes boxes with gVisor: a box's programs meet a kernel of their own, which is a
// program of this host, and that one meets a host kernel of which it may call little.
//
// A box is an OCI bundle: a root file system of empty directories on which the host's programs (or
// those of Spec.Root) are mounted to be read, a file system in memory for what is written, no
// network but loopback, and the agent as first process, spoken to over its standard streams.
package runsc
