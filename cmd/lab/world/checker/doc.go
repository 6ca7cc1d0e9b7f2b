// Package checker finds in the history of a world what Headway promises never to do. It shares no code with Headway. It
// reads exchanges, batches, versions and the event log by their documents, and restates each promise.
//
// A rule is named after its promise. A violation of it names the line of the history that shows it, if one does.
//
// The lines of a history beside exchanges are read as follows. The host of a line of kind fault, healed, dead or start
// is the one that is struck. The text of a fault begins with its kind and, for a link, the other host, apart by a space.
// That of its healing begins with its kind. A request that was under way as its host was killed is an exchange with
// status 0.
// A receiver notes each file of a version that it holds as "holds VERSION FILE sha256:HEX". The word "absent" stands
// for the hash of a file that is not there. A program notes its end as "ended: ERROR".
package checker
