// Package runsc makes boxes with gVisor. A box's programs meet a kernel of their own, which is a
// program of this host. That one meets a host kernel of which it may call little.
//
// A box is an OCI bundle. It has a root file system of empty directories on which the host's programs
// (or those of Spec.Root) are mounted to be read. It has a file system in memory for its writes, and
// no network but loopback. The agent is its first process, spoken to over its standard streams.
package runsc
