// Package file keeps a run's event log, payloads, blobs and snapshots in its run
// directory, in plain files. It implements port.Store and port.Blobs.
//
// The files, under the run directory:
//
//	trace.ndjson.zst        the event log (package trace), packed; only ever appended to. A run that began
//	                        with a plain trace.ndjson goes on with it
//	state/lock              held by the process that writes the run, and names it
//	state/payload-00000001  rollouts' payloads: framed records with checksums
//	state/blobs/…           the rows of side channels: a file for each blob, its bytes and then a checksum for
//	                        every 64 KiB of them, so that a read verifies what it touches. There is no such
//	                        directory before the first blob
//	state/snapshot-…        the run's state as of a line of the log, the newest two
//
// Durability: the arguments of Append, PutSample, PutBlob and Snapshot survive the end of the process,
// kill -9 included, once the call has returned. Surviving a loss of power as well is Options.Always.
//
// A process that dies in the middle of a write leaves a torn end, which the next one cuts off. No
// promised byte is in it. Anything else of payloads that does not verify is damage, and an error that
// says where. The log is verified by who reads it: a recovery from its newest snapshot on, a replay
// from its beginning. A blob is written aside and renamed, and its reader verifies it.
//
// A disk without room refuses a write that does not fit and keeps nothing of it. The same may be
// tried again, and everything that was there before stays.
//
// Payload segments are append-only. A group's payloads are deleted with their segment, once every
// group in that segment has been forgotten. So the space on disk is bounded by the groups that live
// and not by the length of the run. The file of a blob is deleted with its attempt or group.
package file
