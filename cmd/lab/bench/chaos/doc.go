// Package chaos kills the parts of a running job, again and again. A script that knows nothing of
// Headway judges the remains: see the tests. It is part of make test-long; -chaos.kills and
// -chaos.seed repeat a run.
package chaos
