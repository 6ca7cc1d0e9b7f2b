package parts

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/engine/llamacpp"
	"github.com/headway-rl/headway/engine/openai"
	"github.com/headway-rl/headway/engine/sglang"
	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/engine/vllm"
	environment "github.com/headway-rl/headway/env/remote"
)

// dialects has how each kind of server speaks.
var dialects = map[string]func(e config.Engine, logf func(format string, args ...any)) upstream.Dialect{
	"vllm":   func(config.Engine, func(string, ...any)) upstream.Dialect { return vllm.New() },
	"sglang": func(config.Engine, func(string, ...any)) upstream.Dialect { return sglang.New() },
	"openai": func(config.Engine, func(string, ...any)) upstream.Dialect { return openai.New() },
	"llamacpp": func(e config.Engine, logf func(string, ...any)) upstream.Dialect {
		return llamacpp.New(llamacpp.Options{Command: e.Command, Convert: e.Convert, Logf: logf})
	},
}

// DialectOf is how an engine's server speaks. logf is told of servers that are started again. The error is of a kind
// that is no server, or that has no dialect.
func DialectOf(e config.Engine, logf func(format string, args ...any)) (upstream.Dialect, error) {
	dialect, known := dialects[e.Kind]
	if !known {
		return nil, fmt.Errorf("engine %s: kind %q has no dialect; want one of %s", e.Name, e.Kind, strings.Join(slices.Sorted(maps.Keys(dialects)), ", "))
	}
	return dialect(e, logf), nil
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
