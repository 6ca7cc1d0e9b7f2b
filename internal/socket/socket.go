// Package socket has connections for streams of small events.
//
// A goroutine may wait for an event, handle it in some microseconds and wait again. That costs a process that does
// little else more than its own work. Each first system call after a time without any wakes the runtime's monitor, a
// thread that watches over calls that may block. The reads and writes here never block, for the runtime has every
// socket not block, and waits for it by itself. So they are made without telling it. A long read or write is left to
// the ordinary way, and so is everything where that is not possible.
//
// A setting, gateway.raw_io, turns them on: they lean on the runtime's insides.
package socket

// shortBytes is the longest read or write that is made without telling the runtime: while it lasts, nobody else can
// have its goroutine's processor, so it has to be over within microseconds.
const shortBytes = 16 << 10
