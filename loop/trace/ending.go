package trace

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
)

// endingBytes is how much of a trace's end is read for its last line. A frame holds less.
const endingBytes = 1 << 20

// Ending returns the reason for which the run of a trace ended, such as steps or stopped, from its end alone. The empty
// reason is of a trace without an end note: its run goes on, or its process died. It is also that of a damaged end.
// The error is of a file that cannot be read.
func Ending(path string) (reason string, err error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return "", err
	}
	tail := make([]byte, min(info.Size(), endingBytes))
	if _, err := file.ReadAt(tail, info.Size()-int64(len(tail))); err != nil && err != io.EOF {
		return "", err
	}
	if !Packed(path) {
		return endReason(tail), nil
	}
	// The four bytes that begin a frame may also stand within one, so that several places are tried.
	for end := len(tail); end > 0; {
		at := bytes.LastIndex(tail[:end], frameMagic)
		if at < 0 {
			break
		}
		text, _ := io.ReadAll(io.LimitReader(NewText(bytes.NewReader(tail[at:])), 16*endingBytes))
		if len(text) > 0 {
			return endReason(text), nil
		}
		end = at
	}
	return "", nil
}

// endReason reads the reason of an end note that is a text's last line, "" where another line is.
func endReason(text []byte) string {
	text = bytes.TrimRight(text, "\n")
	var line struct {
		Note string `json:"note"`
		Data struct {
			Reason string `json:"reason"`
		} `json:"data"`
	}
	if json.Unmarshal(text[bytes.LastIndexByte(text, '\n')+1:], &line) != nil || line.Note != NoteEnd {
		return ""
	}
	return line.Data.Reason
}
