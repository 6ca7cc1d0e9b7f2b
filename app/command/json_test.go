package command

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/internal/failure"
)

// judging prints its document, or not, and fails.
type judging struct {
	Output
	Late bool
}

func (c *judging) Run(p *app.Process) error {
	if c.Late {
		fmt.Fprintln(p.Stdout, `{"errors": 1}`)
	}
	return failure.Run("mend it", "the document has an error")
}

// With --json exactly one document goes to standard output, whatever goes wrong.
func TestErrorsAreJSON(t *testing.T) {
	for _, c := range []struct {
		arguments, want string
		code            int
	}{
		{"judge --json", `{"error":{"code":"failure","exit_code":1,"message":"the document has an error","hint":"mend it"}}`, 1},
		{"judge --json --late", `{"errors":1}`, 1},
		{"judge --bogus --json", `{"error":{"code":"usage","exit_code":2,"message":"unknown flag --bogus","hint":"try judge --help lists its flags"}}`, 2},
		{"judge --bogus", ``, 2},
	} {
		program := Program{Name: "try", Grammar: func() any {
			return &struct {
				Judge judging `cmd:""`
				Other judging `cmd:""`
			}{}
		}}
		var stdout, stderr strings.Builder
		code := program.Main(strings.Fields(c.arguments), strings.NewReader(""), &stdout, &stderr)
		if have := compact(t, stdout.String()); have != c.want || code != c.code {
			t.Errorf("%s: %d, %s, want %d, %s", c.arguments, code, have, c.code, c.want)
		}
		if !strings.HasPrefix(stderr.String(), "headway: ") {
			t.Errorf("%s: standard error has %q", c.arguments, stderr.String())
		}
	}
}

func compact(t *testing.T, document string) string {
	t.Helper()
	if document == "" {
		return ""
	}
	var raw json.RawMessage = []byte(strings.TrimSpace(document))
	text, err := json.Marshal(raw)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
