package protocol

// Scoring is what the servers of one channel do, teachers or references, since this process began.
type Scoring struct {
	// Channel is teacher or reference.
	Channel string `json:"channel"`
	// Waiting is how many sequences wait for a slot of a server, WaitedS how long all have waited.
	Waiting int             `json:"waiting"`
	WaitedS float64         `json:"waited_s"`
	Servers []ScoringServer `json:"servers"`
}

// ScoringServer is one of them.
type ScoringServer struct {
	Name string `json:"name"`
	URL  string `json:"url"`
	// Running calls are under way in so many slots.
	Running int `json:"running"`
	Slots   int `json:"slots"`
	// Calls were answered, Failures were not, or wrongly. Seconds is what both took.
	Calls    int64   `json:"calls"`
	Failures int64   `json:"failures"`
	Seconds  float64 `json:"seconds"`
	// LastError is why the newest failure was one.
	LastError string `json:"last_error,omitempty"`
}
