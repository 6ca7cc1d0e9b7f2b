package api

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/headway-rl/headway/internal/reread"
)

// Role is what a token may do. Roles are bits, so that a path can allow several.
type Role uint8

// Roles. Every role reads status, stream and metrics; RoleViewer can do nothing else.
const (
	// RoleTrainer leases batches and publishes weights.
	RoleTrainer Role = 1 << iota
	// RoleEnvironment claims, plays and finishes rollouts.
	RoleEnvironment
	// RoleEngine reads weights and joins a rendezvous.
	RoleEngine
	// RoleViewer reads.
	RoleViewer
	// RoleAdmin may do everything.
	RoleAdmin
	// roleAny is whoever is known.
	roleAny = RoleTrainer | RoleEnvironment | RoleEngine | RoleViewer | RoleAdmin
	// roleAgent is the holder of a rollout's key. No token has it.
	roleAgent Role = RoleAdmin << 1
)

// roleNames in the order of their bits; tokenRoles are those that a token file may have.
var (
	roleNames  = [...]string{"trainer", "environment", "engine", "viewer", "admin", "agent"}
	tokenRoles = roleNames[:5]
)

// String returns the role's name, several joined by "or".
func (r Role) String() string {
	var names []string
	for i, name := range roleNames {
		if r&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "nobody"
	}
	return strings.Join(names, " or ")
}

// Tokens are the secrets of a token file, kept as hashes. A nil *Tokens lets every caller in.
type Tokens struct {
	known []token
	// file is where they are read again from, nil for those of a text.
	file *reread.Value[*Tokens]
}

type token struct {
	hash [sha256.Size]byte
	role Role
}

// tokenCharsMin is the shortest token: 16 random characters of base64 are 96 bits.
const tokenCharsMin = 16

// tokensMax bounds a token file: every request is held against all of them.
const tokensMax = 1024

// WatchTokens reads a token file as ReadTokens does, and reads it again when it changes. A file that
// cannot be used then leaves the tokens before, and logf is told.
func WatchTokens(path string, logf func(format string, args ...any)) (*Tokens, error) {
	file, err := reread.New("the token file "+path, func() (*Tokens, error) { return ReadTokens(path) }, logf, path)
	if err != nil {
		return nil, err
	}
	return &Tokens{file: file}, nil
}

// ReadTokens reads a token file. It is refused if everybody on the machine may read or change it.
func ReadTokens(path string) (*Tokens, error) {
	// Looked at before it is opened: opening a pipe waits for its writer.
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("api: token file %s is no regular file", path)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("api: token file: %w: want lines \"ROLE TOKEN\"", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("api: token file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("api: token file %s is no regular file", path)
	}
	if mode := info.Mode().Perm(); mode&0o007 != 0 || mode&0o020 != 0 {
		return nil, fmt.Errorf("api: token file %s has mode %04o, which lets others read or change it: chmod 600 %s", path, mode, path)
	}
	tokens, err := ParseTokens(file)
	if err != nil {
		return nil, fmt.Errorf("api: token file %s: %w", path, err)
	}
	return tokens, nil
}

// ParseTokens reads lines "ROLE TOKEN"; empty lines and those that begin with # count for
// nothing. Several tokens of one role are fine, so that one can be replaced without a pause.
func ParseTokens(text io.Reader) (*Tokens, error) {
	tokens := &Tokens{}
	seen := make(map[[sha256.Size]byte]int)
	lines := bufio.NewScanner(io.LimitReader(text, 1<<20))
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		if n == 1 {
			line = strings.TrimPrefix(line, "\ufeff") // some editors begin a file with a byte order mark
		}
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		t, err := parseToken(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if earlier, ok := seen[t.hash]; ok {
			return nil, fmt.Errorf("line %d: the same token as in line %d: give every line a token of its own", n, earlier)
		}
		seen[t.hash] = n
		tokens.known = append(tokens.known, t)
		if len(tokens.known) > tokensMax {
			return nil, fmt.Errorf("line %d: more than %d tokens", n, tokensMax)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(tokens.known) == 0 {
		return nil, errors.New("holds no token: want lines \"ROLE TOKEN\", ROLE one of " + strings.Join(tokenRoles, ", "))
	}
	return tokens, nil
}

// parseToken reads one line. Its errors never quote a token.
func parseToken(line string) (token, error) {
	fields := strings.Fields(line)
	if len(fields) != 2 {
		return token{}, fmt.Errorf("has %d words: want \"ROLE TOKEN\"", len(fields))
	}
	var role Role
	for i, name := range tokenRoles {
		if fields[0] == name {
			role = 1 << i
		}
	}
	if role == 0 {
		// The word is not quoted: in a line written the wrong way round it is the token.
		return token{}, errors.New("begins with an unknown role: want one of " + strings.Join(tokenRoles, ", "))
	}
	if len(fields[1]) < tokenCharsMin {
		return token{}, fmt.Errorf("the token of role %s has %d characters: want at least %d, random ones, as from openssl rand -base64 32", role, len(fields[1]), tokenCharsMin)
	}
	for _, c := range []byte(fields[1]) {
		if c <= ' ' || c > '~' {
			return token{}, fmt.Errorf("the token of role %s has a character that no header can carry: want printable ASCII", role)
		}
	}
	return token{hash: sha256.Sum256([]byte(fields[1])), role: role}, nil
}

// tokenID tells one token from another: the hash of it.
type tokenID [sha256.Size]byte

// find returns the role of a secret and its identity, both zero where it is not known. It compares
// hashes, all of them and each wholly, so that its time says nothing of how close a guess was.
func (t *Tokens) find(secret []byte) (role Role, token tokenID) {
	if t.file != nil {
		t = t.file.Get()
	}
	hash := sha256.Sum256(secret)
	for i := range t.known {
		same := subtle.ConstantTimeCompare(hash[:], t.known[i].hash[:])
		role |= Role(same) * t.known[i].role
		subtle.ConstantTimeCopy(same, token[:], t.known[i].hash[:])
	}
	return role, token
}

// bearer returns the secret of an Authorization header, nil for another scheme.
func bearer(header string) []byte {
	scheme, secret, ok := strings.Cut(header, " ")
	if !ok || !strings.EqualFold(scheme, "bearer") {
		return nil
	}
	return bytes.TrimSpace([]byte(secret))
}
