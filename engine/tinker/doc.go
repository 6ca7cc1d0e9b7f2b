// Package tinker implements port.Engine over a service of Tinker's API (package tinker of this module), which
// samples from weights that a trainer has saved there.
//
// # Weights change between pieces
//
// Such a service answers a request for tokens when all of them are sampled, and every request names the weights. A
// response is therefore sampled in pieces of at most Options.Piece tokens. Each piece continues the prompt and the
// response so far, by the version that the engine serves when the piece begins. A switch of weights reaches a running
// response at its next piece. Without hold it waits for nothing. Under hold it waits until the pieces under way have
// ended, and no other begins before it has taken place. The version of a token is that of the request that brought it:
// exact, never derived.
//
// An interruption, the end of the context and Close are heeded at once. The piece under way is lost then, and the
// pieces before it are returned. Check is asked about every token, when its piece is there. Tokens behind the one
// where it stops the response count for nothing.
//
// # Large pieces or small ones
//
// A piece costs a round trip and the time to take in everything before it. That is short where the service keeps the
// keys and values of prefixes and else as long as a prefill. It loses, where it is cut off, up to Options.Piece tokens,
// and holds a switch up, or is stale, for as long as it takes. Small pieces (64) suit services that cache prefixes,
// short train steps and loops that interrupt often. Large ones (1,024, or the whole response) suit services that cache
// nothing. SkyRL's backend on JAX begins with a batch of pieces when all of the one before have ended, and caches
// nothing. With a tiny model on a busy machine of two cores it sampled 101, 268 and 697 tokens a second. The pieces
// were of 16, 64 and 256. There were 16 responses of up to 256 tokens at once. It also compiles anew for each number of
// tokens asked for: there make the greatest length of a response a multiple of the piece.
//
// # What is asked of the service
//
// A response ends with the token that ended it, whose log-prob is trained on like any other's. The services known
// (SkyRL on JAX and on vLLM, TuFT) return that token. A response that says that it stopped and does not is an error:
// without the stop its last log-prob is unknown. SkyRL before a vLLM of one's own does not pass the stops on, and
// samples on behind such a token. It is believed up to that token, since it would have sampled the same tokens with
// them.
//
// Texts that end a response are looked for by the service, in the text of one request. A response with such texts is
// one piece, so that none is missed over the border of two. One may be missed at a place where the response was
// interrupted. The engine has no text to give: port.Generation.TextPartial is set.
//
// A version's weights must stay its own. SkyRL on JAX, without a vLLM that samples, keeps one set of weights for a
// model. Tokens sampled while it trains are sampled by the weights in training, for any name in the request. The first
// sample of a version loads that into the very place that trains, which undoes a step taken since. Nothing here can see
// that; it suits a loop that does not sample while it trains.
package tinker
