// Package remote is a trainer in another process. It implements port.Trainer towards
// the runtime, and towards the API the protocol of leases: connect, lease, renew,
// publish, ack, nack.
//
// # What commits
//
// A batch is committed by the manifest of the version that it made, and by nothing
// else. A lease that runs out goes back to the queue unless that manifest is there. An ack or a
// publish that comes later is refused, so that nothing is trained on twice. A lease cannot run out
// while its version is being written, and a version is not written once its lease has run out. Both
// are decided under one lock, by a clock that never goes back.
//
// # Who trains
//
// A run has one trainer at a time, of one or more ranks. Every call is a sign of life of it. A call
// that waits, a share on its way out and a file on its way in count for as long as they go on. A
// batch goes back when a rank that has its share is silent for longer than a lease lasts. It also
// goes back when such a rank says that it has started anew. Another trainer is let in when the first
// has been silent for as long.
//
// # Restarts
//
// When this process ends, the lease stays out in the run's log. The recovered run offers the batch
// again as the next attempt of the same lease. The trainer that holds it goes on renewing and
// publishes under its own attempt. That is the same work, and counts until the batch is leased anew.
// A trainer that went back to an earlier state publishes it as the next version. The loop is told,
// and a batch that was on offer goes back.
package remote
