// Package chaos kills the parts of a running job, again and again. A script that knows nothing of
// Headway judges the remains: see the tests. It is part of make test-long, which kills each process
// -chaos.kills times; -chaos.seed repeats a run. Kills are added up over many runs by
//
//	HEADWAY_LONG=1 go test ./cmd/lab/bench/chaos -timeout 0 -count 10 -chaos.ledger FILE
//
// which goes on where the file stands, and ends when it holds -chaos.until kills of each process.
package chaos
