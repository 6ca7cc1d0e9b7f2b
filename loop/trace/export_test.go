package trace

import "os"

// SetFrameBytes has the log end its frames at so much text.
func (l *Log) SetFrameBytes(n int) { l.frame = n }

// SetFile has the log go on in another open file of the same path.
func (l *Log) SetFile(file *os.File) { l.file = file }
