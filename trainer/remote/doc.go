// Package remote is a trainer in another process. It implements live.Trainer towards
// the runtime, and towards the API the protocol of leases: connect, lease, renew,
// publish, ack, nack.
//
// A batch is committed by the manifest of the version that it made, and by nothing
// else. A lease that runs out goes back to the queue unless that manifest is there; an
// ack or a publish that comes later is refused, so that nothing is trained on twice.
package remote
