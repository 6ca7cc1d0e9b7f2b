// Package trace is the event log of a run: its events, its decisions and the notes that a reader
// needs, one JSON object a line. For a live run it is the write-ahead log that recovery replays;
// the simulator writes the same format.
//
// There are three kinds of line: an event ("e"), an action that the driver executes, and a note
// ("note"). An action ("a") stands after the event that it follows from. "n" is the sequence number
// of the event, "t" its time in nanoseconds since the run started. The first line is the note
// "header" with the rules of the loop and the resolved config. The last line of a complete trace is
// the note "end".
//
// Every line ends with a checksum of itself and all lines before it. So a changed, missing or
// repeated line is found at its place.
//
// A file of lines is plain or packed. A packed one holds the same text in zstd frames, which standard
// tools read. Readers see which it is by how it begins.
package trace
