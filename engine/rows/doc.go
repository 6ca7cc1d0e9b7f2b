// Package rows reads the rows of side channels out of the answers of servers, and checks them.
//
// Servers write the rows of a whole rollout as one base64 text inside one event. [Reader] takes such texts out of a
// stream as they come, and decodes them into the smallest type that holds them. So a stream has neither the text nor
// the event in memory. The rows of all streams share [RoomBytes] of memory. A stream for whose rows there is no room
// waits on its connection.
package rows
