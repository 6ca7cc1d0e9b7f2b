package protocol

import "net/netip"

// Caller is who sent a request, by the server's knowledge and not by the request's word. The zero value
// is this process itself.
type Caller struct {
	// Peer is the address at the other end of the connection.
	Peer netip.Addr
	// Role of the caller's token, such as engine; empty where no tokens are asked for.
	Role string
	// Token tells one token from another, and is no secret; empty where no tokens are asked for.
	Token string
}
