// Package plan searches the settings of a run before it costs anything. It goes
// from a model, a kind of GPU and a budget to the split, batch, queue, concurrency
// and policy to use. It says why, and which constraints bind.
//
// The search goes by closed forms; the finalists are simulated by the production
// loop. Where no closed form covers a rule, its candidates are simulated from
// the start, and the plan says so.
package plan
