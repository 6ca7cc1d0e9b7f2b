// Package code is a task whose responses are programs. A prompt names operations on a list, the
// outermost first, as a composition is read. A response is the statements of a real function in
// Python or Go. The function is run in a sandbox on inputs that the policy never sees, and rewarded
// by the share of checks that it passes.
//
// A batch's programs are apart. The process that runs them is shut to them by /proc, and processes that
// one leaves behind are ended before the next begins. That holds in a sandbox whose programs are no
// superuser. A program may always end the run of its batch, which is then gone through again to find it.
//
// The expected output never enters the sandbox. The function's values are compared outside, so that
// no program can look the answers up or say that it has passed.
package code
