// Package upstream is what rollout engines share that are servers of their own: it implements
// live.Engine over a Dialect, which knows how one kind of server speaks.
//
// What is decided here, once for every kind:
//
//   - A response is streamed. It is whole only with a finish reason and the stream's regular
//     end; anything else (an error inside HTTP 200, a broken connection, silence) is cut off,
//     and what there is goes on: on the same server while that answers, else it is given back
//     with live.ErrEngineDown. No token is sampled twice for one place of a response.
//   - Every token has an id, a log-prob and a version, or the response is an error. A log-prob
//     that stands for a missing one (-9999), is not finite or is above 0 is missing.
//   - Versions are those that the server reports for spans of a response, where it does. Elsewhere
//     they are derived from the barrier of a switch and marked so: sampling stands still from
//     before the update until the new version counts.
//   - A switch pauses, updates, verifies the server's own word on what it serves, and resumes.
//     The resume is deferred, repeated and idempotent: no way out of a switch leaves a server
//     paused. After a failed update its weights are unknown.
//   - What a server can is asked, never concluded from its version.
package upstream
