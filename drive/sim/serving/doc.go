// Package serving simulates a group of engine replicas that serve sessions of calls,
// event by event, in virtual time.
//
// A step of an engine follows vLLM's scheduler. Every decoding sequence gets a token. The rest of the
// step's tokens reads prompts in chunks, first come, first served. Blocks of the cache are counted. A
// block that no call uses stays findable until the least recently used is needed. A prompt finds whole
// blocks from its start, and its last token is always computed. Where blocks run out, the call that was
// admitted last gives its own up and reads them again later.
//
// A row of steps that differ in nothing but the length of contexts is advanced at once. It ends with the
// first call that ends, the next that comes, or the last free block. Its time is the sum of an arithmetic
// series, which is exact for a cost that is affine in the resident tokens. Any other cost is cut into
// pieces in which it nearly is.
//
// Nothing is random. The same sessions and settings give the same result, byte for byte.
package serving
