package parts

import (
	"errors"
	"fmt"
	"github.com/headway-rl/headway/internal/failure"
	"os"
	"strings"
)

// SecretOf reads a secret that a document names the file of, empty for none.
func SecretOf(key, path string) (string, error) {
	if path == "" {
		return "", nil
	}
	secret, err := readSecret(path)
	switch {
	case errors.Is(err, errNoSecret):
		return "", failure.Usage("it has the secret alone, in one line", "%s: %w", key, err)
	case err != nil:
		return "", failure.Usage("name a file with the secret alone", "%s: %w", key, err)
	}
	return secret, nil
}

// errNoSecret is wrapped by the error of a file with anything but one line.
var errNoSecret = errors.New("has no secret")

// readSecret reads a file that has a secret alone.
func readSecret(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	secret := strings.TrimSpace(string(text))
	if secret == "" || strings.ContainsAny(secret, "\r\n") {
		return "", fmt.Errorf("%s %w", path, errNoSecret)
	}
	return secret, nil
}
