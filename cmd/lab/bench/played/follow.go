package played

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"
	"time"
)

// Follow reads the events of a stream to its end, and returns how long each took, in milliseconds. The time of sending stands in
// its text. An error says how many came of those that were to come.
func Follow(content io.Reader, events int) ([]float64, error) {
	lines := bufio.NewReaderSize(content, 4<<20) // a gateway may put many tokens into one event
	out := make([]float64, 0, events)
	mark := []byte(`"text":"`)
	for {
		line, err := lines.ReadSlice('\n')
		if err != nil {
			return out, fmt.Errorf("the stream broke off after %d of %d events: %w", len(out), events, err)
		}
		if bytes.HasPrefix(line, []byte("data: [DONE]")) {
			break
		}
		now := time.Now().UnixNano()
		for at := bytes.Index(line, mark); at >= 0; at = bytes.Index(line, mark) {
			line = line[at+len(mark):]
			for len(line) > timeDigits && line[0] >= '0' && line[0] <= '9' { // an event may have several tokens
				if sent, err := strconv.ParseInt(string(line[:timeDigits]), 10, 64); err == nil {
					out = append(out, float64(now-sent)/1e6)
				}
				line = line[timeDigits:]
			}
		}
	}
	if len(out) != events {
		return out, fmt.Errorf("%d tokens came of %d", len(out), events)
	}
	return out, nil
}
