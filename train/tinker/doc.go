// Package tinker trains an adapter at a service of Tinker's API. A batch goes there as data with advantages; the
// service adds up the gradient and steps. The state that it then saves is the next version. It implements port.Trainer;
// [Versions] keeps, as port.Weights, where the service has saved each version.
//
// The loss is any of grpo's corrections. Where the service has the very same one it computes it in one pass. Any other
// is computed here, from the log-probs of a first pass, and its derivative goes there with a second.
//
// A model at the service is gone on with only while its weights are known. After anything that failed the next attempt
// makes another and loads the state of the version that the step starts from.
package tinker
