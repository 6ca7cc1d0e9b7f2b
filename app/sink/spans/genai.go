package spans

import (
	"go.opentelemetry.io/otel/attribute"

	"github.com/headway-rl/headway/loop"
)

// Names of OpenTelemetry's semantic conventions for generative AI, which are in development and have
// been renamed before: they are here and nowhere else. Those that begin with rl are ours.
const (
	operationName   = attribute.Key("gen_ai.operation.name")
	providerName    = attribute.Key("gen_ai.provider.name")
	requestModel    = attribute.Key("gen_ai.request.model")
	conversation    = attribute.Key("gen_ai.conversation.id")
	outputTokens    = attribute.Key("gen_ai.usage.output_tokens")
	toolName        = attribute.Key("gen_ai.tool.name")
	errorType       = attribute.Key("error.type")
	groupID         = attribute.Key("rl.group.id")
	sampleIndex     = attribute.Key("rl.rollout.sample")
	attemptNumber   = attribute.Key("rl.rollout.attempt")
	startVersion    = attribute.Key("rl.policy.version")
	trainVersion    = attribute.Key("rl.policy.train_version")
	stalenessKey    = attribute.Key("rl.staleness")
	rewardKey       = attribute.Key("rl.reward")
	groupEnd        = attribute.Key("rl.group.end")
	environmentTime = attribute.Key("rl.environment.time_s")

	// The operations that an agent's spans name.
	operationAgent = "invoke_agent"
	operationTool  = "execute_tool"
	provider       = "headway"
)

func versionOf(key attribute.Key, v loop.Version) attribute.KeyValue { return key.Int64(int64(v)) }
