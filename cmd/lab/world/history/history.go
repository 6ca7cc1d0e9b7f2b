// Package history holds the things that a world's hosts saw and did: exchanges of the clients with the planes, and
// faults. A checker is given this and the run's log, and nothing else.
package history

// Line is one thing that happened, in the order in which it was over.
type Line struct {
	// AtNS is the world's time since its start, in nanoseconds, when it was over.
	AtNS int64 `json:"at_ns"`
	// Host is the name of the host that saw or did it: trainer, worker0, plane1, engine0, broker, receiver0, observer,
	// or world.
	Host string `json:"host"`
	// Kind is exchange, fault, healed, start, dead, or note.
	Kind string `json:"kind"`
	// Text says what a note, a fault or a start is.
	Text     string    `json:"text,omitempty"`
	Exchange *Exchange `json:"exchange,omitempty"`
}

// Exchange is a request over HTTP and its answer.
type Exchange struct {
	BeganNS int64 `json:"began_ns"`
	// To is the name of the host that was asked.
	To     string `json:"to"`
	Method string `json:"method"`
	Path   string `json:"path"` // with its query
	// Bearer is the token that the request brought, if any: a claim's key is one.
	Bearer string `json:"bearer,omitempty"`
	// Key is the Idempotency-Key of the request, if any: a call that is sent again has that of the first.
	Key string `json:"key,omitempty"`
	// Range is the part of a file that the request names, such as bytes=100-; empty for the whole.
	Range string `json:"range,omitempty"`
	// Request and Response are the bodies as they went over the wire; a response that broke off is as far as it came.
	Request  []byte `json:"request,omitempty"`
	Response []byte `json:"response,omitempty"`
	// Type is the content type of the response.
	Type string `json:"type,omitempty"`
	// Status is that of HTTP; 0 where no answer came.
	Status int `json:"status"`
	// Error is why no answer came, or none in full.
	Error string `json:"error,omitempty"`
	// Lost is an answer of status 200 that was sent in full and that its host never got.
	Lost []byte `json:"lost,omitempty"`
}

// Ending is what lies on the disks when the run has ended.
type Ending struct {
	// Dir is the folder of the run at the plane that ended it: its trace (trace.ndjson.zst) and its weights are in it.
	Dir string
	// Log is the file of the log where it is not in Dir; empty otherwise.
	Log string
	// Finished says that the run made its steps after everything was healed.
	Finished bool
}
