// Package transfer brings a version's files from where it was published to every engine
// and every stage of it: over TCP in a chain, chunk by chunk, each receiver
// passing on what it has while more arrives; or from a shared disk or an object store.
//
// The order is fixed: prefetch everywhere, then all stages report that they hold the
// version, then all switch. A stage that cannot is quarantined: no new work, a full
// reload, and only then it rejoins. Nothing is served from a mix of stages.
package transfer
