// Package tinkertest is a service of Tinker's API in memory, for tests of what speaks to one.
//
// A [Service] has a model that is small and real. Log-probs follow from its weights, gradients from the losses that the
// API names, and a step changes the weights by them. It orders requests as each of the servers does that people run
// (see [Order]), and speaks either of the two encodings. It keeps saved state, samples from it by seed, tells which
// operations it has executed, and fails on purpose (see [Fault]). It is reached over [Service.Dial] alone and so runs
// inside a bubble of testing/synctest:
//
//	service := tinkertest.New(tinkertest.Options{Order: tinkertest.Strict})
//	defer service.Close()
//	session, err := tinker.Open(ctx, tinker.Options{URL: service.URL(), Dial: service.Dial})
//
// The model knows the token before each target and nothing else. Its logits are a row a token, at first those of the
// base model, which are the same for every service. Rank and seed of an adapter make no difference.
package tinkertest
