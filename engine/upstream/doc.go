// Package upstream is the common part of rollout engines that are servers of their own. It
// implements port.Engine over a Dialect, which knows how one kind of server speaks.
//
// It decides these things, once for every kind:
//
//   - A response is streamed. It is whole only with a finish reason and the stream's regular
//     end. A regular end without a reason is an error: it is unknown whether the response was
//     complete. Anything else (an error inside HTTP 200, a broken connection, silence) is cut off,
//     and the tokens so far are kept. The call goes on with them on the same server while that
//     answers, else it is given back with port.ErrEngineDown. No token is sampled twice for one place
//     of a response. Tokens in an event that ends the response count, and are reported with the
//     stream's end.
//   - Every token has an id, a log-prob and a version, or the response is an error. A log-prob
//     that stands for a missing one (-9999), is not finite or is above 0 is missing.
//   - Versions are those that the server reports for spans of a response, where it does and its
//     labels were given from here. Elsewhere they are derived from the barrier of a switch and
//     marked so: sampling stands still from before the update until the new version counts.
//   - A call may go on with the tokens that one before has sampled. Then the text that was held back
//     by then is read from the tokens (port.Generation.TextPartial where that cannot be). Stop texts
//     that stand over the place are looked for here.
//   - A switch pauses, updates, verifies the server's own word on what it serves, and resumes. Where
//     it scores tokens, an update must change the log-probs of a fixed sequence, after a loss too. A
//     full server makes room for that question: some responses are cut off and go on later.
//     The resume is deferred, repeated and idempotent: no way out of a switch leaves a server
//     paused. After a failed update its weights are unknown. All calls under way are cut off before
//     the resume, and nothing is sampled until a switch has succeeded. A server that cannot be
//     reached to be resumed is lost after 1.75 s. One that is back by then was started again, so that
//     the switch has failed and its weights are unknown.
//   - The features of a server are asked for, never concluded from its version.
//
// # How exact derived versions are
//
// A server that cannot pause has nothing under way while its weights change. Every response is cut
// off before and goes on as a prefix, so every call has one version. That is exact.
//
// At a server that can pause, responses stand still. Nothing is sampled between the pause and the resume. So every
// token that arrives before the new version counts is of the old one: exact, if the server keeps its word. Tokens
// sampled before the pause that arrive after the resume would count as new. Such a token must have been on its way for
// the whole update, and for Options.Quiet after it. In that time none arrived on any stream while the server answered
// other questions at once, and this process ran on time. That is not exact on a machine that is short of processors:
// give Options.Quiet more there, or prefer servers that report versions. A server that goes on bringing tokens does not
// stand still. The switch fails, and the responses it has touched are errors, those too that ended meanwhile. The same goes
// for one that says after the update that it is paused no longer (Pauser). Another process may have resumed it, such as
// a cell's that was replaced.
// FirstToken tells the version by the barrier, as it must before the server reports any.
//
// # When a server is another one
//
// One that was started again serves other weights under the same address. A new connection may lead to another server.
// So on each the server is asked for the label of its weights before a token is recorded. A call whose connection broke
// off is made again only after the same question, and a refusal on a new connection is believed only then. Labels are
// of this process (Label). A server that tells no label is believed on new connections. It counts as lost where one
// breaks off (a switch fails where one does meanwhile), and where it refuses every call (401, 403, 404, 405). After a
// loss Load asks anew what it can. On DeliveryRestart nothing is asked before Switch has started the server.
package upstream
