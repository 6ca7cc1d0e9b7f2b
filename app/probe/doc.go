// Package probe asks the servers, tasks and sandboxes of a document how they are, for doctor. It starts no run.
package probe
