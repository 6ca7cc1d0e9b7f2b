package main

import (
	"crypto/tls"
	"crypto/x509"
	"github.com/headway-rl/headway/internal/failure"
	"os"
	"slices"
	"strings"
)

// readToken reads a file with a token alone, or takes from a server's token file the one
// whose role stands first in roles.
func readToken(path string, roles ...string) (string, error) {
	hint := "want a file with the token alone, or the server's token file (lines \"ROLE TOKEN\")"
	text, err := os.ReadFile(path)
	if err != nil {
		return "", failure.Usage(hint, "--token-file: %w", err)
	}
	alone, best, rank, lines := "", "", len(roles), 0
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		lines++
		switch {
		case len(fields) == 1 && lines == 1:
			alone = fields[0]
		case len(fields) == 2:
			if i := slices.Index(roles, fields[0]); i >= 0 && i < rank {
				best, rank = fields[1], i
			}
		}
	}
	if alone != "" && lines == 1 {
		return alone, nil
	}
	if best == "" || alone != "" {
		wanted := ""
		if len(roles) == 1 {
			wanted = " of the role " + roles[0]
		}
		return "", failure.Usage(hint, "--token-file %s has no token%s", path, wanted)
	}
	return best, nil
}

// trusting is a client's TLS with the certificates of a PEM file added to those of pool.
func trusting(path string, pool *x509.CertPool) (*tls.Config, error) {
	hint := "name the certificate that signed the server's"
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, failure.Usage(hint, "--ca: %w", err)
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, failure.Usage(hint, "--ca %s: holds no PEM certificate", path)
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
}
