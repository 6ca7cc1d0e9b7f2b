// Package live runs the loop on the wall clock.
//
// One goroutine owns the loop. The trainer, the weights and the store are ports, and a cell executes what is decided of
// rollouts and engines (package cell). Each effect runs beside the loop and finishes by one event in
// the inbox. The inbox is so large that posting never blocks. A slot has at most
// one rollout outstanding, an engine one weight load, the trainer one step. Words of cells in other
// processes have a queue of their own, and wait while it is full.
//
// The runtime knows of rollouts what follows from the log alone. The cell follows the log too, and says events.
//
// Order, per group of events: payloads are durable before their event exists. The
// events are then appended to the log, with the actions that follow from them, in
// one append. Only then are the actions executed.
package live
