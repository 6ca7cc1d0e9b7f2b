package api

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/internal/reread"
)

// replaceFile puts a file in the place of another, as editors and secrets' mounts do.
func replaceFile(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// A token that is added to the file is taken without a restart, one that is removed is not any more, and
// a file that cannot be read changes nothing.
func TestTokensAreReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	const first, second = "first-0123456789", "second-0123456789"
	replaceFile(t, path, []byte("trainer "+first+"\n"))
	synctest.Test(t, func(t *testing.T) {
		log := &logs{}
		tokens, err := WatchTokens(path, log.f)
		if err != nil {
			t.Fatal(err)
		}
		roles := func() [2]Role {
			one, _ := tokens.find([]byte(first))
			two, _ := tokens.find([]byte(second))
			return [2]Role{one, two}
		}
		for _, step := range []struct {
			text string
			want [2]Role
			word string
		}{
			{"trainer " + first + "\nengine " + second + "\n", [2]Role{RoleTrainer, RoleEngine}, "was read again"},
			{"engine " + second + "\n", [2]Role{0, RoleEngine}, "was read again"},
			{"engine\n", [2]Role{0, RoleEngine}, "line 1: has 1 words"},
			{"trainer " + first + "\n", [2]Role{RoleTrainer, 0}, "was read again"},
		} {
			replaceFile(t, path, []byte(step.text))
			time.Sleep(reread.Every)
			if got := roles(); got != step.want || !strings.Contains(log.String(), step.word) {
				t.Errorf("after %q: roles %v, want %v; the log is %q, want %q in it", step.text, got, step.want, log, step.word)
			}
			if strings.Contains(log.String(), "0123456789") {
				t.Fatalf("a token is in the log: %s", log)
			}
			*log = logs{}
		}
	})
}

// So is a certificate, as soon as its key fits it.
func TestCertificateIsReadAgain(t *testing.T) {
	certificate, key, _ := selfSigned(t)
	other, otherKey, _ := selfSigned(t)
	read := func(path string) []byte {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	synctest.Test(t, func(t *testing.T) {
		log := &logs{}
		config, err := LoadTLS(certificate, key, log.f)
		if err != nil {
			t.Fatal(err)
		}
		shown := func() []byte {
			pair, err := config.GetCertificate(nil)
			if err != nil {
				t.Fatal(err)
			}
			return pair.Certificate[0]
		}
		first := shown()
		replaceFile(t, certificate, read(other))
		time.Sleep(reread.Every)
		if !bytes.Equal(shown(), first) || !strings.Contains(log.String(), "the one before stays") {
			t.Errorf("a certificate without its key is shown; the log is %q", log)
		}
		replaceFile(t, key, read(otherKey))
		time.Sleep(reread.Every)
		if bytes.Equal(shown(), first) || !strings.Contains(log.String(), "was read again") {
			t.Errorf("the certificate before is shown still; the log is %q", log)
		}
	})
}
