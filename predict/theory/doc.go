// Package theory predicts staleness and speed of a fully asynchronous run by
// closed forms, before anything runs.
//
// # Symbols
//
// C slots generate at once, S rollouts make a group, G groups make a batch of
// B = G·S rollouts, the queue holds Q = q·B rollouts. A train step alone takes
// t_step, the mean interval between updates is T. ρ is rollout throughput over
// train throughput, M = E[longest of S siblings]/E[length]. C, B and Q are all
// counted in rollouts.
//
// # What the numbers mean
//
// Staleness counts train steps between the policy version a group's first token
// was sampled with and the version its train step starts from. It is the sum of
// pre-queue staleness (PQS, up to the group's last sibling) and in-queue staleness
// (IQS, waiting to be trained). Conventions: versions count when the step starts,
// and engines serve the new version from the step's end (plus the sync). The batch
// leaves the queue at the step's start, and a freed slot takes the next rollout at
// once.
//
// # Two answers
//
// [Predict] gives the published closed form ([PreQueue], [InQueue], [Period]) on
// inputs adjusted for acceptance, environment time and weight sync. Beside it
// stand the corrected figures ([Corrections]). They count whole versions, the
// finite queue near ρ = 1, late batches, staggered starts and irregular updates.
// They agree away from ρ = 1. Use [Prediction.Corrected] where one best number is
// wanted. [Estimator] gives the corrected figures for many settings of one
// workload, some microseconds each; it is the same forms.
//
// # Where they hold
//
// Every answer says whether it is covered and, if not, why ([Reason]); figures
// that no form gives are unknown ([Figure]). Nothing is made up: a command
// simulates instead and says so. Page docs/theory.md has the forms with their
// ranges and derivations, and docs/theory-accuracy.md their errors against the simulator.
package theory
