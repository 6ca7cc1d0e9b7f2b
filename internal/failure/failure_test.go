package failure

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// A printed error keeps its lines. A terminal obeys nothing of the paths and texts that it quotes.
func TestPrintEscapes(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{errors.New("a\x1b[31m\u202eb:\n\tc\r"), "headway: a\\x1b[31m\\u202eb:\n\tc\n"},
		{fmt.Errorf("run: %w", Usage("try \x1b]0;x\a", "no")), "headway: run: no\n  try \\x1b]0;x\\a\n"},
	} {
		var out strings.Builder
		Print(&out, c.err)
		if out.String() != c.want {
			t.Errorf("printed %q, want %q", out.String(), c.want)
		}
	}
}

// A JSON error has the parts of each mistake, where the error knows them.
func TestDocumentOf(t *testing.T) {
	out, err := json.MarshalIndent(DocumentOf(Usage("see --help", "predict: %w", field{}), ExitUsage), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	want := `{
  "error": {
    "code": "usage",
    "exit_code": 2,
    "message": "predict: batch is bad",
    "hint": "see --help",
    "faults": [
      {
        "key": "batch",
        "value": "0",
        "problem": "is not allowed",
        "allowed": "at least 1"
      }
    ]
  }
}`
	if string(out) != want {
		t.Errorf("printed %s, want %s", out, want)
	}
}

type field struct{}

func (field) Error() string                       { return "batch is bad" }
func (field) Fault() (key, value, allowed string) { return "batch", "0", "at least 1" }
