package weights

// Cast says what the tensors of a version are cast to.
type Cast struct {
	// DType is BF16 or F8E4M3.
	DType DType `json:"dtype"`
}
