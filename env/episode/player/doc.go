// Package player plays a run's rollouts inside the control plane. Its workers claim them by the words
// that workers elsewhere use, and play their episodes with a policy behind the gateway's handler.
// They finish each with a reward or with the failure.
//
// A claim is kept while its rollout is played, also while a tool or a verifier is at work. One
// that is no longer wanted is given up at once. Nothing is remembered between processes. The process
// that goes on offers an episode that a crash left open as another attempt, and the pool removes its
// sandbox.
package player
