// Package code is a task whose responses are programs. A prompt names operations on a list,
// the outermost first, as a composition is read; a response is statements that a real function
// in Python or Go is made of. The function is run in a sandbox on inputs that the policy never
// sees, and rewarded by the share of checks that it passes.
//
// A batch's programs are apart: the process that runs them is shut to them by /proc, and what one leaves
// behind is ended before the next begins. That holds in a sandbox whose programs are no superuser; and a
// program may always end the run of its batch, which is then gone through again to find it.
//
// What is to come out never enters the sandbox: the function's values are compared outside, so
// that no program can look the answers up or say that it has passed.
package code
