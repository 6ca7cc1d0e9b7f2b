// Package transfer brings a version's files from where it was published to every engine and every
// stage of it. It does so over TCP in a chain, chunk by chunk, where each receiver passes on the
// bytes that it has while more arrive. Or it takes them from a shared disk or an object store.
//
// The order is fixed: prefetch everywhere, then all stages report that they hold the
// version, then all switch. A stage that cannot is quarantined: no new work, a full
// reload, and only then it rejoins. Nothing is served from a mix of stages.
package transfer
