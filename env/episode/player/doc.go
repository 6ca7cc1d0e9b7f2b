// Package player plays a run's rollouts inside the control plane. Its workers claim them by the words
// that workers elsewhere use, and play their episodes with a policy behind the gateway's handler.
// They finish each with a reward or with the failure.
//
// A claim is kept while its rollout is played, also while a tool or a verifier is at work. One
// that is no longer wanted is given up at once. An episode that the end of the process left open is
// played again by the next one. Its sandbox is new, and its turns are those that were recorded.
package player
