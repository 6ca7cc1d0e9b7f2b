package failure

import (
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
