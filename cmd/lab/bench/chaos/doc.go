// Package chaos kills the parts of a running job, again and again, and has what is left
// judged by a script that knows nothing of Headway: see the tests. It is part of
// make test-long; -chaos.kills and -chaos.seed repeat a run.
package chaos
