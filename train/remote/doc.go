// Package remote is a trainer in another process. It implements port.Trainer towards
// the runtime, and towards the API the protocol of leases: connect, lease, renew,
// publish, ack, nack.
//
// # What commits
//
// A batch is committed by the manifest of the version that it made, and by nothing
// else. A lease that runs out goes back to the queue unless that manifest is there; an
// ack or a publish that comes later is refused, so that nothing is trained on twice. A
// lease cannot run out while its version is being written, and a version is not written
// once its lease has run out: both are decided under one lock, by a clock that never
// goes back.
//
// # Who trains
//
// A run has one trainer at a time, of one or more ranks. It is heard of by every call: a
// call that waits, a share on its way out and a file on its way in count for as long as
// they go on. A batch goes back when a rank that has its share is silent for longer
// than a lease lasts, or says that it has started anew. Another trainer is let in
// when the first has been silent for as long.
//
// # Restarts
//
// When this process ends, the lease stays out in the run's log, and the recovered run
// offers the batch again as the next attempt of the same lease. The trainer that
// holds it goes on renewing and publishes under its own attempt: that is the same work, and
// counts until somebody leases the batch anew. A trainer that went back to an
// earlier state publishes it as the next version; the loop is told, and what was on
// offer goes back.
package remote
