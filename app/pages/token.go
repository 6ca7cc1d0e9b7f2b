package pages

import (
	"crypto/rand"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// TokenFile has the token of a run's pages, in its directory. Its owner alone can read it. A page that is open
// while its run is started again goes on by it.
const TokenFile = "dashboard.token"

// tokenChars is the length of a token.
const tokenChars = 26

// Token returns the token that a run directory has, else a new one.
func Token(dir string) string {
	text, err := os.ReadFile(filepath.Join(dir, TokenFile))
	if kept := strings.TrimSpace(string(text)); err == nil && len(kept) == tokenChars && strings.Trim(kept, tokenAlphabet) == "" {
		return kept
	}
	return rand.Text()
}

// tokenAlphabet has the characters of rand.Text.
const tokenAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"

// KeptToken is Token, kept in the directory where that is possible.
func KeptToken(dir string) string {
	token, path := Token(dir), filepath.Join(dir, TokenFile)
	if file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600); err == nil {
		_ = file.Chmod(0o600) // it may be there already, for others to read
		_, _ = file.WriteString(token + "\n")
		_ = file.Close()
	}
	return token
}

// Link is the address that opens the pages. The part behind # stays in the browser: no server, proxy or log sees it.
func Link(listener net.Listener, token string) string {
	return "http://" + listener.Addr().String() + "/#/?token=" + token
}
