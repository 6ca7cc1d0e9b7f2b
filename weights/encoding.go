package weights

// Encoding is how a delta says what changed.
type Encoding string

const (
	// Overwrite says the new values of the elements that changed. Applying it twice gives
	// the same.
	Overwrite Encoding = "overwrite"
	// XOR says the bits that changed. Applying it twice is refused.
	XOR Encoding = "xor"
)
