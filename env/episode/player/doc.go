// Package player plays a run's rollouts inside the control plane. Its workers claim them by
// the words that workers elsewhere use, play their episodes with a policy behind the
// gateway's handler, and finish each with a reward or with what failed.
//
// A claim is kept while its rollout is played, also while a tool or a judge is at work. One
// that is no longer wanted is given up at once. Nothing is remembered between processes: what
// a crash leaves open is offered again as another attempt by the process that goes on, and
// its sandbox is removed by the pool.
package player
