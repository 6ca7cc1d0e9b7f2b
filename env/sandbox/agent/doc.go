// Package agent is the program inside a box, the words to it, and the client that speaks them.
//
// The program is headway itself, started under another name ([Name]): a hook of this package's
// initialisation takes over before anything else of headway runs. A driver starts it in the place
// it has made with [Start]. It is the first process there, reads requests from its standard input
// and answers on its standard output, one at a time. Files are read and written by it, so by the
// box's own view of them: a link cannot lead out of the box.
//
// The client does not trust it: a program in the box may have taken it over. An answer that is
// none, or longer than was asked for, is a Failure of class Protocol and ends the box.
package agent
