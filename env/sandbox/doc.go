// Package sandbox is the port to what code of the policy runs in: a box with files and
// processes of its own and limits on what it takes, made by a driver of one technology.
//
// Two kinds of bad end are kept apart. What a program inside does to itself (it runs out of
// memory, of time, of processes, of disk) is a [Result] that names the limit it met: the
// environment decides what that is worth. What befalls the box (it does not start, its
// backend is down, it is lost) is an error that wraps a [Failure]: nobody's answer was judged,
// and a reward never comes of it.
package sandbox
