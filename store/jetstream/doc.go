// Package jetstream keeps a run's event log, payloads, blobs and snapshots in NATS JetStream. That is
// a server inside this process, or a cluster. It implements port.Store and port.Blobs.
//
// # What is where
//
// A run has six streams, a key-value bucket and, if asked for, an object store:
//
//	headway_RUN_log        the event log: a message for what one Append brought, of whole lines, or
//	                       several, of which all but the last say that more follows
//	headway_RUN_header     the log's first line
//	headway_RUN_snapshots  the newest two snapshots, in two of the three streams that are called
//	                       headway_RUN_snapshots, …_snapshots2 and …_snapshots3
//	headway_RUN_payload    rollouts' payloads: small ones that were put at the same time share a
//	                       message, a large one has its own, or several. Blobs are among them, in
//	                       messages of up to 1 MiB, each with a checksum
//	headway_RUN_writer     the writer's lease
//	headway_RUN_objects    files, such as published weights
//
// Cells in other processes follow the log by a Link, and say words to the writer by core NATS, one subject
// a cell: headway.RUN.cell.NAME. No stream holds these, for the log says which of them arrived.
//
// # What survives
//
// The arguments of Append, PutSample, PutBlob and Snapshot survive kill -9 once the call has returned. The
// embedded server, and a cluster's stream of one replica, answer after the write to the file. It is
// then in the kernel's page cache, which outlives the process and not the machine. A stream of
// several replicas is answered after a majority has written it to its Raft log, likewise without
// waiting for the disk. Any minority of nodes may be lost. Surviving a loss of power everywhere is
// Options.Always, and sync_interval: always of a cluster.
//
// # What damage takes
//
// A server that was killed reads its files up to the first record that does not verify, and drops
// what follows in that file. Each snapshot therefore lies in a stream of its own. A snapshot is read back
// before anything is given up for it, and so are those before it. One that is damaged is said in the log,
// does not count among the two that are kept, and nothing is trimmed to it. Lines that the log has given
// up are read from the mirror. With a damaged file of the log itself the log may end early: see
// drive/live, which compares it with the versions that are published. Of a blob that lost a message, the
// bytes in its other messages still read.
//
// # One writer
//
// The writer holds a lease and renews it. A standby takes over when it has seen no renewal for the
// lease's time by its own monotonic clock. No time of day is compared with any other, so that a clock
// that jumps changes nothing. A lease cannot stop a process that has been away and believes that it
// still holds one. Therefore every message of the log names the sequence that it expects to follow. A
// writer that takes over first appends a marker with a higher epoch: nothing of the deposed writer
// fits any more. The deposed writer can still do this:
//
//   - Append: refused by the server. The store answers ErrFenced from then on.
//   - PutSample, PutBlob: stored under the old epoch. No index takes it in place of one of a higher epoch,
//     and no event names it. Retain drops it.
//   - Forget, Discard: they remove messages that it knew, of attempts and groups whose end it had
//     appended before. So the new writer has read of that end. A purge stops at the first message
//     that this process did not account for, which a successor's are.
//   - Snapshot: a state as of a line that it had appended, and that is in the log for good.
//   - The mirror: with a cluster each writer makes a file of its own and renames it over the one
//     before. A deposed writer goes on writing into a file that has no name.
//
// # What is bounded
//
// Log and payloads have a bound each. Blobs share that of payloads, of which they leave an eighth. A
// full stream refuses what comes, and never removes what somebody needs. Of the log, the lines that the
// older of the two snapshots covers are given up. Of payloads and blobs, everything before the first
// that is still needed is purged at once. Forgotten ones behind it are deleted message by message where
// they are many bytes. There are two snapshots and one that is being written, whose size is the run's,
// each in a stream of its own. The server keeps each stream in files of up to 4 or 8 MB, and removes one
// when nothing in it is needed. Memory holds an index of the payloads and blobs that are needed, some
// payloads (Options.CacheBytes), and nothing that grows with the run.
package jetstream
