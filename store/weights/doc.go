// Package weights keeps policy versions on disk, each whole or not there at all.
// It implements port.Weights.
//
// A version is a directory, v000017, of
//
//	NAME.safetensors  what engines serve, in one file or several
//	optimizer.*       the trainer's own state
//	manifest.json     what the version is, which batch produced it, and the size
//	                  and SHA-256 of the files; it ends in its own hash
//	derived/          what was made from it: deltas that lead to it, casts
//
// The embedded trainer publishes tensors (Store.Publish); others publish files, a
// directory, or a delta, through a Draft. A version without weights commits a batch
// all the same. Remote takes versions through an object store. docs/weights.md has
// the formats and the guarantees.
//
// # Publishing
//
// A version is written into a temporary directory beside the others, its manifest
// last, and then renamed into place. A directory without a manifest is not a
// version, so a reader never sees half of one. A published version survives the end of the process,
// kill -9 included; surviving a loss of power as well is Options.Always. Open removes what a killed
// process left behind.
//
// A directory has one writing Store at a time, which the lock of the run directory sees to. Any
// number of read-only ones may look at it meanwhile.
//
// # Reading
//
// Everything read is verified against the manifest's hashes, so a version that
// was damaged is an error (CorruptError) and never served. Pruning moves a
// version away before it deletes it: a reader that has begun finishes or gets
// ErrNotFound.
//
// # Files
//
// Tensors lie in safetensors files: a little-endian uint64 with the length of a
// JSON header, the header, and the raw little-endian values. ParseHeader refuses any header that
// leaves a byte of the data without exactly one owner.
package weights
