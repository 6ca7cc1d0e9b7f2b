package protocol

import "github.com/headway-rl/headway/loop"

// PublishRequest publishes a version: POST /api/v1/weights. It comes as the part "manifest" of
// multipart/form-data, before one part for each of Files in their order (the part's name is the
// file's name). With Directory or Rendezvous it comes alone as application/json. A version is there
// whole, or not at all. Publishing the same again is fine; other content under a version that
// exists is CodeConflict.
type PublishRequest struct {
	Trainer string `json:"trainer"`
	// Lease and Attempt name the batch that the version was made from, and commit it; 0 for version 0
	// and for a restored version.
	Lease   loop.LeaseID `json:"lease"`
	Attempt int32        `json:"attempt"`
	// Version is the one that this makes: the batch's plus 1.
	Version loop.Version `json:"version"`
	// RestoredFrom, if not nil, says that this is an earlier version's state, by a trainer that went
	// back to it. It becomes the next version, without a batch.
	RestoredFrom *loop.Version `json:"restored_from,omitempty"`
	// Kind is full or delta. A delta applies to BaseVersion, -1 for full, by Encoding: overwrite or xor.
	Kind        string       `json:"kind"`
	BaseVersion loop.Version `json:"base_version"`
	Encoding    string       `json:"encoding,omitempty"`
	// Files follow as parts, or lie in Directory. They are model safetensors in one or more files, and
	// optimizer.* for the trainer's own state, which engines never load.
	Files []PublishFile `json:"files,omitempty"`
	// Directory on a disk that trainer and server share, below one of the server's allowed directories.
	Directory string `json:"directory,omitempty"`
	// Rendezvous names the collective over which the weights have gone to the engines.
	Rendezvous string `json:"rendezvous,omitempty"`
	// Ack's fields, so that one request ends the step.
	ForwardVersion loop.Version       `json:"forward_version"`
	StepVersion    loop.Version       `json:"step_version"`
	Metrics        map[string]float64 `json:"metrics,omitempty"`
}

// PublishFile is a file of a publish.
type PublishFile struct {
	// Name in the version's directory: no separators.
	Name string `json:"name"`
	// Size in bytes, Hash of the content, "sha256:" and 64 hexadecimal digits; empty to have the server compute it.
	Size int64  `json:"size"`
	Hash string `json:"hash,omitempty"`
}

// PublishReply says what was published.
type PublishReply struct {
	Version loop.Version `json:"version"`
	// Existing: it had been there already, by an earlier try.
	Existing bool `json:"existing"`
}

// VersionState is a version and where it is: GET /api/v1/weights/{v}.
type VersionState struct {
	Version loop.Version `json:"version"`
	// State is published, loading, served or pruned.
	State string `json:"state"`
	// Manifest of the version, as its file has it.
	Manifest any `json:"manifest"`
	// Engines by name.
	Engines []EngineVersion `json:"engines"`
}

// EngineVersion is the version that an engine, or a stage of it, serves.
type EngineVersion struct {
	Engine  string       `json:"engine"`
	Stage   int          `json:"stage"`
	Version loop.Version `json:"version"`
	// Loaded is held beside it, -1 for none. State is that of loop.EngineStatus, or quarantined.
	Loaded loop.Version `json:"loaded"`
	State  string       `json:"state"`
}
