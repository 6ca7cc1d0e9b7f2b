// Package tinker speaks, as a client, the API of Tinker. That service has the GPUs and keeps adapters of a base model.
// It adds up gradients of data that it is sent, steps, and samples. Thinking Machines serves it, and so do servers that
// run on machines of one's own (SkyRL, TuFT).
//
// A [Session] is a client's stay at a service; a [Model] is an adapter in training. A [Sampler] samples from weights
// that a model has saved. Long operations are futures at the service: a method here returns when the operation has, and
// tries again what may be tried again.
//
// Operations on one model are numbered (seq_id), from 1 and without a gap. Services differ in their use of the number.
// Tinker executes in its order, however requests arrive; TuFT refuses a request that is not the next. SkyRL takes
// requests as they arrive and does not look at it. A model therefore sends one operation's request after the other's
// has been taken. It sends one again only if it was surely not taken, or if the service has been seen to execute a
// number once. That is right at all three.
//
// Services differ as well in what they read a pass over data in, protobuf or JSON; a session finds out which.
package tinker
