// Package failure is the error that a person reads: its message, a hint that
// says what to do, and the exit code that it stands for.
//
// Every folder may return one. The command line alone prints it.
package failure
