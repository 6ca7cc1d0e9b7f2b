package trace

// SetFrameBytes has the log end its frames at so much text.
func (l *Log) SetFrameBytes(n int) { l.frame = n }
