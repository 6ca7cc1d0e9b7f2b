package vllm

import (
	"testing"

	"github.com/headway-rl/headway/engine/enginetest"
	"github.com/headway-rl/headway/engine/upstream"
)

// FuzzStream: the events of a stream may be anything.
func FuzzStream(f *testing.F) {
	enginetest.FuzzDecoder(f, func() upstream.Decoder { return &decoder{path: pathGenerate} }, []string{"testdata/everything.txt", "testdata/developer.txt"}, eventTokens, eventText, eventCompletions, eventLast)
}

// FuzzServer: the answers to all other calls may be anything.
func FuzzServer(f *testing.F) {
	enginetest.FuzzServer(f, func() upstream.Dialect { return New() }, "testdata/everything.txt", "testdata/developer.txt")
}
