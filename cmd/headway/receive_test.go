package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/plane"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/store/transfer"
)

// authority makes a certificate authority's file, and a certificate of it for 127.0.0.1 with its key.
func authority(t *testing.T) (ca, certificate, key string) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	root := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: root.NotBefore, NotAfter: root.NotAfter, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	rootDER, err := x509.CreateCertificate(rand.Reader, root, root, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, root, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return write("ca.pem", "CERTIFICATE", rootDER), write("leaf.pem", "CERTIFICATE", leafDER), write("key.pem", "PRIVATE KEY", keyDER)
}

// Weights go between machines by TLS alone.
func TestReceiveListensByTLS(t *testing.T) {
	ca, certificate, key := authority(t)
	for line, want := range map[string]string{
		"--listen 0.0.0.0:0 --address http://10.0.0.3:7071":     "--tls-cert and --tls-key",
		"--listen 10.0.0.3:7071":                                "--tls-cert and --tls-key",
		"--listen 0.0.0.0:0":                                    "--address",
		"--listen 127.0.0.1:0 --tls-cert " + certificate:        "belong together",
		"--listen 127.0.0.1:0 --address https://127.0.0.1:7071": "which serves http",
		"--listen 127.0.0.1:0 --ca " + ca + " --tls-cert " + certificate + " --tls-key " + key + " --address http://a:1":  "which serves https",
		"--listen 127.0.0.1:0 --tls-cert " + certificate + " --tls-key " + key:                                            "would refuse --tls-cert",
		"--listen 127.0.0.1:0 --ca " + ca + " --tls-cert " + certificate + " --tls-key " + key + " --address https://a:1": "would refuse --tls-cert",
		"--listen 127.0.0.1:0 --ca " + ca + " --tls-cert " + key + " --tls-key " + certificate:                            "PEM",
	} {
		args := append([]string{"receive", "http://127.0.0.1:1", "--engine", "e", "--dir", t.TempDir()}, strings.Fields(line)...)
		code, stdout, stderr := headway(t, args...)
		if code != failure.ExitUsage || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("receive %s: code %d, %q, want 2 and %q", line, code, stderr, want)
		}
	}
}

// A receiver passes a version on by TLS to who brings a key for it, and to nobody else.
func TestReceivePassesOnByTLS(t *testing.T) {
	ca, certificate, key := authority(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "model.safetensors"), []byte("weights"), 0o644); err != nil {
		t.Fatal(err)
	}
	parts := []transfer.Part{{Name: "model.safetensors", Size: 7}}
	manifest := fmt.Sprintf(`{"files":[{"name":"model.safetensors","hash":"sha256:%x"}]}`, sha256.Sum256([]byte("weights")))
	c, err := transfer.OpenCopy(7, "", []byte(manifest), parts, dir)
	if err != nil {
		t.Fatal(err)
	}
	command := &receiveCmd{URL: "http://127.0.0.1:1", Listen: "127.0.0.1:0", CA: ca, TLSCert: certificate, TLSKey: key}
	trust, err := command.trust()
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	store, agent := &transfer.Store{Dir: t.TempDir()}, &transfer.Agent{}
	stop, err := command.passOn(&app.Process{Stderr: &log}, store, agent, trust)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	store.Source.Add(c)
	if !strings.HasPrefix(agent.Address, "https://127.0.0.1:") || !strings.HasSuffix(agent.Address, plane.TransferPrefix) || len(agent.Secret) < 16 {
		t.Fatalf("it announces %q, with a secret of %d characters", agent.Address, len(agent.Secret))
	}
	fetch := func(trust *tls.Config, key string) error {
		child := &transfer.Store{Dir: t.TempDir(), Client: transfer.NewClient(trust, command.from())}
		_, err := child.Fetch(t.Context(), transfer.Load{Version: 7, Offer: store.Source.Digest(7, ""), Parents: []transfer.Parent{{URL: agent.Address, Key: key}}})
		return err
	}
	good := transfer.SignKey(agent.Secret, 7, "", time.Now().Add(time.Minute))
	if err := fetch(trust, good); err != nil {
		t.Errorf("with a key: %v", err)
	}
	if err := fetch(trust, ""); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("without a key: %v", err)
	}
	if err := fetch(&tls.Config{RootCAs: x509.NewCertPool()}, good); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("by an authority that is not trusted: %v", err)
	}
	agent.Address = "http" + strings.TrimPrefix(agent.Address, "https")
	if err := fetch(trust, good); err == nil {
		t.Error("it answers in clear")
	}
}

// A command of --on-switch may leave an engine behind that keeps its output open.
func TestOnSwitchLeavesAnEngine(t *testing.T) {
	var out strings.Builder
	c := &receiveCmd{OnSwitch: "sleep 600 & echo $! $HEADWAY_VERSION"}
	if err := c.onSwitch(t.Context(), &app.Process{Stderr: &out}, 3, "x"); err != nil {
		t.Error(err)
	}
	pid, version, _ := strings.Cut(strings.TrimSpace(out.String()), " ")
	number, err := strconv.Atoi(pid)
	if err == nil {
		err = syscall.Kill(number, syscall.SIGKILL)
	}
	if err != nil || version != "3" {
		t.Errorf("%q: %v", out.String(), err)
	}
}

func TestReceiveRefusesAddresses(t *testing.T) {
	for _, address := range []string{"ftp://x", ""} {
		if code, _, stderr := headway(t, "receive", address, "--engine", "e", "--dir", t.TempDir()); code != failure.ExitUsage || !strings.Contains(stderr, "is not the address of a control plane") {
			t.Errorf("%q: code %d: %s", address, code, stderr)
		}
	}
	if code, _, stderr := headway(t, "receive", "http://127.0.0.1:1", "--engine", "e", "--rate-limit", "NaN"); code != failure.ExitUsage {
		t.Errorf("a rate of NaN: code %d: %s", code, stderr)
	}
}
