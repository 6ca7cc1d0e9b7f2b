// Package file keeps a run's event log, payloads and snapshots in its run
// directory, in plain files. It implements port.Store.
//
// What is where, under the run directory:
//
//	trace.ndjson            the event log (package trace); only ever appended to
//	state/lock              held by the process that writes the run, and names it
//	state/payload-00000001  rollouts' payloads: framed records with checksums
//	state/snapshot-…        the run's state as of a line of the log, the newest two
//
// What survives: after Append, PutSample or Snapshot has returned, what it was
// given survives the end of the process, kill -9 included. Surviving a loss of
// power as well is Options.Always.
//
// A process that dies in the middle of a write leaves a torn end, which the next one
// cuts off; nothing that was promised is in it. Anything else of payloads that does
// not verify is damage, and an error that says where. The log is verified by who reads
// it: a recovery from its newest snapshot on, a replay from its beginning.
//
// A disk without room refuses what does not fit and keeps nothing of it; the same may
// be tried again, and everything that was there before stays.
//
// Payload segments are append-only. A group's payloads are deleted with their
// segment, once every group in that segment has been forgotten, so what is on
// disk is bounded by the groups that live and not by the length of the run.
package file
