// Package verifier judges the work of a rollout. It does so by comparing, by an expression of the
// user's, by a command or by a server. Or it runs tests in the sandbox that the policy worked in. A
// verdict is a finite reward in its range; anything else is a failure that says whose.
package verifier
