// Package rendezvous brings the members of a collective together: it waits until trainer
// and engines are all there, tells each its rank offset and where to meet, and does it
// again under a new epoch when the membership changes. It moves no tensor.
//
// Everybody is answered at once, because both sides of a collective block while it is
// initialised. A member is there while its call is open: one that gives up waiting is not
// counted on. While an epoch stands, its members are answered with it whenever they name
// it; a member that joins with another epoch, or a new one, ends it, and the others learn
// so by their next call.
package rendezvous
