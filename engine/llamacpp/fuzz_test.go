package llamacpp

import (
	"testing"

	"github.com/headway-rl/headway/engine/enginetest"
	"github.com/headway-rl/headway/engine/upstream"
)

// FuzzStream: the events of a stream may be anything.
func FuzzStream(f *testing.F) {
	enginetest.FuzzDecoder(f, func() upstream.Decoder { return &decoder{stops: []int32{2}} }, []string{"testdata/conversation.txt"}, `{"tokens":[1],"completion_probabilities":[{"id":1,"logprob":-0.5}],"content":"a","stop":true,"stop_type":"limit","tokens_predicted":1}`)
}

// FuzzServer: the answers to all other calls may be anything.
func FuzzServer(f *testing.F) {
	enginetest.FuzzServer(f, func() upstream.Dialect { return New(Options{}) }, "testdata/conversation.txt")
}
