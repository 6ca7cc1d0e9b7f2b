// Package sandbox is the port to the boxes in which code of the policy runs. A box has files and
// processes of its own and limits on its use, and is made by a driver of one technology.
//
// Two kinds of bad end are kept apart. A program's own fault (it runs out of memory, of time, of
// processes, of disk) is a [Result] that names the limit it met. The environment decides its worth.
// A fault of the box (it does not start, its backend is down, it is lost) is an error that wraps a
// [Failure]. No answer was judged then, and a reward never comes of it.
package sandbox
