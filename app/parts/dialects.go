package parts

import (
	"fmt"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/engine/llamacpp"
	"github.com/headway-rl/headway/engine/openai"
	"github.com/headway-rl/headway/engine/sglang"
	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/engine/vllm"
	environment "github.com/headway-rl/headway/env/remote"
)

// DialectOf is how an engine's server speaks. logf is told of servers that are started again.
func DialectOf(e config.Engine, logf func(format string, args ...any)) upstream.Dialect {
	switch e.Kind {
	case "vllm":
		return vllm.New()
	case "sglang":
		return sglang.New()
	case "openai":
		return openai.New()
	case "llamacpp":
		return llamacpp.New(llamacpp.Options{Command: e.Command, Convert: e.Convert, Logf: logf})
	}
	return sglang.New()
}

// unfit says why a server cannot hold what the run would ask of it.
func unfit(caps upstream.Capabilities, vocabulary int, limits environment.Limits) []string {
	var out []string
	if caps.Vocabulary > 0 && caps.Vocabulary != vocabulary {
		out = append(out, fmt.Sprintf("its model has %d token ids, and that of model.path %d: they are not the same model", caps.Vocabulary, vocabulary))
	}
	if need := limits.PromptTokens + limits.ResponseTokens; caps.Context > 0 && caps.Context < need {
		out = append(out, fmt.Sprintf("it takes sequences of %d tokens, and environment.prompt_tokens_max and response_tokens_max allow %d: lower them, or start it with a longer context", caps.Context, need))
	}
	return out
}
