// Package port declares what a live run needs from the world: engines,
// environments, trainers, weights, stores and fleets, and the values that pass
// between them.
//
// The runtime in package live calls these ports; an adapter implements one and imports nothing of
// the runtime. Nothing here decides and nothing here runs. The one piece of behaviour, [Pacer],
// holds a device to its pace on behalf of its owner.
package port
