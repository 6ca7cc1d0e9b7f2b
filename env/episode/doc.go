// Package episode plays rollouts of tasks that are text, up to the verdict. A rollout is a chat
// with a policy that may call tools, in a sandbox of its own or in an environment elsewhere. Where
// the time of a rollout goes is recorded turn by turn.
package episode
