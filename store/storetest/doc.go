// Package storetest is the conformance suite of live.Store: every store passes it.
package storetest
