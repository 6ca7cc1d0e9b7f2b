package sglang

import (
	"testing"

	"github.com/headway-rl/headway/engine/enginetest"
	"github.com/headway-rl/headway/engine/upstream"
)

// FuzzStream: the events of a stream may be anything.
func FuzzStream(f *testing.F) {
	enginetest.FuzzDecoder(f, func() upstream.Decoder { return &decoder{} }, []string{"testdata/cumulative.txt", "testdata/incremental.txt"}, event(`"a"`, "7", "[null,7,null]", "null", 1, ""))
}

// FuzzServer: the answers to all other calls may be anything.
func FuzzServer(f *testing.F) {
	enginetest.FuzzServer(f, func() upstream.Dialect { return New() }, "testdata/cumulative.txt", "testdata/incremental.txt")
}
