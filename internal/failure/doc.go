// Package failure is the error that a person reads. It has a message, a hint that says the remedy,
// and the exit code that it stands for.
//
// Every folder may return one. The command line alone prints it.
package failure
