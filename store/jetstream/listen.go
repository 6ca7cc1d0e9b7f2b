package jetstream

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/headway-rl/headway/internal/replace"
)

// An embedded server that listens takes in the cells of its run alone, over TLS. Each has a file, with the certificate of the
// server and a secret. All secrets follow from the server's private key, so that they stay when it starts again.

const (
	// serverName is the name in the certificate: a cell trusts the certificate, at whatever address.
	serverName = "headway"
	// ownUser is the user of the process that has the server. No cell has a name with a space.
	ownUser = "control plane"
	// keyFile is in the server's directory: its certificate and private key.
	keyFile = "server.pem"
	// secretBlock is the PEM block of a cell's secret.
	secretBlock = "HEADWAY CELL SECRET"
	// entranceTimeout is how long a connection may take to say who it is.
	entranceTimeout = 10 * time.Second
)

// entrance is by which an embedded server knows who connects.
type entrance struct {
	certificate tls.Certificate
	key         ed25519.PrivateKey
}

// openEntrance reads the server's key in its directory, which the first of its processes makes, and writes the files of cells.
func openEntrance(o Options) (*entrance, error) {
	path := filepath.Join(o.Dir, keyFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if text, err = newServerKey(); err == nil {
			err = replace.File(path, text, 0o600)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("store: the key of the NATS server: %w", err)
	}
	e := &entrance{}
	if e.certificate, err = tls.X509KeyPair(text, text); err == nil {
		var is bool
		if e.key, is = e.certificate.PrivateKey.(ed25519.PrivateKey); !is {
			err = fmt.Errorf("its key is a %T", e.certificate.PrivateKey)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("store: %s is no key of a NATS server: %w: remove it, and start the cells of the run again", path, err)
	}
	for cell, file := range o.Cells {
		if err := e.admit(cell, file); err != nil {
			return nil, fmt.Errorf("store: the file by which cell %s enters the NATS server: %w", cell, err)
		}
	}
	return e, nil
}

// newServerKey is a private key and a certificate for it that the key has signed, as PEM. It has no end: who trusts it has a copy.
func newServerKey() ([]byte, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	form := x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{serverName}, NotBefore: time.Unix(0, 0), NotAfter: time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)}
	certificate, err := x509.CreateCertificate(rand.Reader, &form, &form, public, private)
	if err != nil {
		return nil, err
	}
	key, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
	return append(text, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})...), nil
}

// secret is the password of a user.
func (e *entrance) secret(user string) []byte {
	h := hmac.New(sha256.New, e.key.Seed())
	h.Write([]byte(user))
	return h.Sum(nil)
}

// admit writes the file of a cell, unless it is there as it should be.
func (e *entrance) admit(cell, path string) error {
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: e.certificate.Certificate[0]})
	text = append(text, pem.EncodeToMemory(&pem.Block{Type: secretBlock, Bytes: e.secret(cell)})...)
	if before, err := os.ReadFile(path); err == nil && string(before) == string(text) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return replace.File(path, text, 0o600)
}

// listenOn has a server listen: its process may do all, and cells no more than they need.
func (e *entrance) listenOn(s *server.Options, o Options) error {
	host, port, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return fmt.Errorf("store: the address to listen on: %w", err)
	}
	// The server would say nothing of an address that it cannot have.
	trial, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return fmt.Errorf("store: the NATS server for cells: %w: give store.nats.listen an address of this machine at which nothing else listens", err)
	}
	if err := trial.Close(); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	s.DontListen, s.Host = false, host
	if s.Port, err = strconv.Atoi(port); err != nil {
		return fmt.Errorf("store: the address to listen on, %s: %w", o.Listen, err)
	}
	s.TLS, s.TLSConfig = true, &tls.Config{Certificates: []tls.Certificate{e.certificate}, MinVersion: tls.VersionTLS13}
	s.TLSTimeout, s.AuthTimeout = entranceTimeout.Seconds(), entranceTimeout.Seconds()
	s.Users = []*server.User{{Username: ownUser, Password: hex.EncodeToString(e.secret(ownUser))}}
	for cell := range o.Cells {
		s.Users = append(s.Users, userOf(o.Run, cell, hex.EncodeToString(e.secret(cell))))
	}
	return nil
}

// userOf is the user of a cell, with its rights.
func userOf(run, cell, password string) *server.User {
	publish, subscribe := Rights(run, cell)
	return &server.User{Username: cell, Password: password, Permissions: &server.Permissions{
		Publish: &server.SubjectPermission{Allow: publish}, Subscribe: &server.SubjectPermission{Allow: subscribe},
	}}
}

// enter are the options of a connection by which the process that has the server enters it, none where it does not listen.
func (e *entrance) enter() []nats.Option {
	if e == nil {
		return nil
	}
	return []nats.Option{nats.UserInfo(ownUser, hex.EncodeToString(e.secret(ownUser)))}
}

// enterAs are the options of a connection by which a cell enters a server that listens, by its file. The file is read again
// for each connection: the control plane writes it anew where its secrets are new.
func enterAs(cell, path string) ([]nats.Option, error) {
	if _, _, err := readEntry(path); err != nil {
		return nil, err
	}
	return []nats.Option{
		nats.Secure(&tls.Config{ServerName: serverName, MinVersion: tls.VersionTLS13}),
		func(o *nats.Options) error {
			o.RootCAsCB = func() (*x509.CertPool, error) {
				trusted, _, err := readEntry(path)
				return trusted, err
			}
			return nil
		},
		nats.UserInfoHandler(func() (string, string) {
			_, secret, _ := readEntry(path) // without one, the server refuses the cell, and it tries again
			return cell, secret
		}),
	}, nil
}

// readEntry reads whom a cell trusts, and by which secret it enters.
func readEntry(path string) (trusted *x509.CertPool, secret string, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, "", fmt.Errorf("store: %w", err)
	}
	trusted = x509.NewCertPool()
	block, rest := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" || !trusted.AppendCertsFromPEM(pem.EncodeToMemory(block)) {
		return nil, "", fmt.Errorf("store: %s has no certificate first: the control plane writes it anew when it starts", path)
	}
	if block, _ = pem.Decode(rest); block == nil || block.Type != secretBlock {
		return nil, "", fmt.Errorf("store: %s has no secret behind its certificate: the control plane writes it anew when it starts", path)
	}
	return trusted, hex.EncodeToString(block.Bytes), nil
}
