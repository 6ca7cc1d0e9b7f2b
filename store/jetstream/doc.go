// Package jetstream keeps a run's event log, payloads and snapshots in NATS JetStream: a
// server inside this process that opens no port, or a cluster. It implements live.Store.
//
// The log is a stream that one writer at a time appends to. The writer holds a lease in
// a key-value bucket, and every append names the sequence number that it expects to
// follow: a writer that was deposed finds that its next append does not fit, whatever it
// believes of its lease.
package jetstream
