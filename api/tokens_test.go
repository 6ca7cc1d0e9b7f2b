package api

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every way in which a token file is wrong is said, and none says a token.
func TestTokenFilesRefused(t *testing.T) {
	const secret = "s3cret-s3cret-s3cret"
	for name, c := range map[string]struct{ text, want string }{
		"empty":        {"", "holds no token"},
		"comments":     {"# nothing\n\n", "holds no token"},
		"one word":     {secret + "\n", "line 1: has 1 words"},
		"three words":  {"trainer a " + secret, "has 3 words"},
		"role":         {"\nteacher " + secret, "line 2: begins with an unknown role"},
		"wrong way":    {secret + " trainer", "unknown role"},
		"short":        {"viewer s3cret", "has 6 characters: want at least 16"},
		"not ASCII":    {"viewer s3crét-s3cret-s3cret", "printable ASCII"},
		"twice":        {"viewer " + secret + "\nadmin " + secret, "line 2: the same token as in line 1"},
		"too many":     {manyTokens(tokensMax + 1), "more than 1024 tokens"},
		"endless line": {"viewer " + strings.Repeat("x", 1<<17), "token too long"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseTokens(strings.NewReader(c.text))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), "s3cr") {
				t.Errorf("the error says the token: %v", err)
			}
		})
	}
}

func manyTokens(n int) string {
	var text strings.Builder
	for i := range n {
		text.WriteString("viewer a-secret-of-some-length-" + strings.Repeat("i", i%7) + string(rune('a'+i%26)) + strings.Repeat("0", i/26) + "\n")
	}
	return text.String()
}

func TestTokenFileModes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(path, []byte("admin 0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, fine := range map[os.FileMode]bool{0o600: true, 0o400: true, 0o440: true, 0o640: true, 0o644: false, 0o604: false, 0o602: false, 0o660: false, 0o666: false} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		_, err := ReadTokens(path)
		if (err == nil) != fine {
			t.Errorf("mode %04o: %v, want fine: %v", mode, err, fine)
		}
		if err != nil && !strings.Contains(err.Error(), "chmod 600") {
			t.Errorf("mode %04o: %v says not what to do", mode, err)
		}
	}
	if _, err := ReadTokens(t.TempDir()); err == nil {
		t.Error("a folder is no token file")
	}
	if _, err := ReadTokens(path + "x"); err == nil {
		t.Error("a file that is not there is no token file")
	}
}

// A token is found by all of it, wherever in the file it stands, and by nothing near it.
func TestTokensFound(t *testing.T) {
	tokens, err := ParseTokens(strings.NewReader("# two of one role, so that one can be replaced\ntrainer first-0123456789\ntrainer second-0123456789\nviewer\t third-0123456789  \r\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		secret string
		role   Role
	}{
		{"first-0123456789", RoleTrainer}, {"second-0123456789", RoleTrainer}, {"third-0123456789", RoleViewer},
		{"", 0}, {"first-012345678", 0}, {"first-01234567890", 0}, {"First-0123456789", 0}, {"first-0123456789\x00", 0},
	} {
		token := tokenID{}
		if c.role != 0 {
			token = sha256.Sum256([]byte(c.secret))
		}
		if role, found := tokens.find([]byte(c.secret)); role != c.role || found != token {
			t.Errorf("%q: role %v and token %x, want %v and %x", c.secret, role, found, c.role, token)
		}
	}
}

// A byte order mark is no part of a role.
func TestTokensAfterByteOrderMark(t *testing.T) {
	tokens, err := ParseTokens(strings.NewReader("\ufefftrainer abcdefghijklmnopqrstuvwxyz\r\n"))
	if err != nil {
		t.Fatal(err)
	}
	if role, _ := tokens.find([]byte("abcdefghijklmnopqrstuvwxyz")); role != RoleTrainer {
		t.Errorf("it is of %s", role)
	}
}
