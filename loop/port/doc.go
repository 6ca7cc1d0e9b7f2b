// Package port declares what a live run needs from the world: engines,
// environments, trainers, weights, stores and fleets, and the values that pass
// between them.
//
// The runtime in package live calls these ports; an adapter implements one and imports nothing of
// the runtime. Nothing here decides and nothing here runs. A few things compute: [Pacer] holds
// a device to its pace for its owner, and [Sample] counts its tokens by version. [As] finds what is behind a [Wrapper].
package port
