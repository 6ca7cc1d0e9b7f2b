package scenario

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headway-rl/headway/app/plane"
	"github.com/headway-rl/headway/cmd/lab/world/machine"
	"github.com/headway-rl/headway/internal/connections"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/store/lock"
	"github.com/headway-rl/headway/store/transfer"
	"github.com/headway-rl/headway/store/weights"
)

const receiverPort = ":7071"

// damaged is the name of weights that are not those of any version.
const damaged = "damaged"

// serveReceiver is headway receive --listen --on-switch, beside the engine of its number.
func (w *World) serveReceiver(h *machine.Host, i int) error {
	dir := h.Name
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	held, err := lock.Take(filepath.Join(dir, "lock"), dir)
	if err != nil {
		return err
	}
	defer held.Release()
	c := transfer.NewClient(&tls.Config{RootCAs: w.trusted, MinVersion: tls.VersionTLS12}, netip.Addr{})
	c.Transport = &balancer{w: w, host: h.Name, inner: &recorder{w: w, host: h.Name, inner: c.Transport}, reported: func(version int64) { w.noteHeld(h.Name, version) }}
	bearer := func() string { return token("engine") }
	store := &transfer.Store{Dir: dir, Keep: 2, Token: bearer, Client: c, Always: w.plan.Durable}
	agent := &transfer.Agent{
		Control: w.planeURLs()[0], Token: bearer, Name: h.Name, Engine: fmt.Sprint("engine", i), Client: c, Delivery: store, Secret: rand.Text(),
		OnSwitch: func(_ context.Context, _ loop.Version, dir string) error { return layOut(dir) },
	}
	stop, err := w.passOn(h, store, agent)
	if err != nil {
		return err
	}
	defer stop()
	return agent.Run(context.Background())
}

// passOn is --listen.
func (w *World) passOn(h *machine.Host, store *transfer.Store, agent *transfer.Agent) (stop func(), err error) {
	listener, err := net.Listen("tcp", h.IP+receiverPort)
	if err != nil {
		return nil, err
	}
	agent.Address = "https://" + listener.Addr().String() + plane.TransferPrefix
	store.Source = &transfer.Source{Secret: agent.Secret}
	bound := connections.New(0)
	server := &http.Server{
		Handler: bound.Handler(store.Source.Handler(plane.TransferPrefix)), TLSConfig: &tls.Config{Certificates: []tls.Certificate{w.certificates[h.Name]}},
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10, Protocols: new(http.Protocols),
	}
	server.Protocols.SetHTTP1(true)
	go func() { _ = bound.Serve(server, listener) }()
	return func() { _ = server.Close() }, nil
}

// layOut is the command of --on-switch: it makes of a version the directory that an engine reads, as a plane's view of it.
func layOut(dir string) error {
	to := filepath.Join(dir, "hf")
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"model/config.json", "model/tokenizer.json", filepath.Join(dir, weights.ModelName)} {
		content, err := os.ReadFile(name)
		if err == nil {
			err = writeSynced(filepath.Join(to, filepath.Base(name)), content)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// writeSynced writes a file so that a loss of power leaves it.
func writeSynced(path string, content []byte) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Sync(), f.Close())
}

// weightsOf is the name of the weights in a directory that an engine is to read: the version's. What lies at a receiver
// has to have the bytes that its manifest names. What lies elsewhere is told with its hash.
func weightsOf(dir string, tell func(version, hash string)) (string, error) {
	content, err := os.ReadFile(filepath.Join(dir, weights.ModelName))
	if err != nil {
		return "", err
	}
	above := filepath.Dir(dir)
	if roleOf(filepath.Base(filepath.Dir(above))) != "receiver" {
		tell(filepath.Base(above), sum(content))
		return filepath.Base(above), nil
	}
	hash, err := listed(above)
	if err != nil { // a loss of power has torn the manifest: the receiver fetches the version anew
		return "", err
	}
	if hash[weights.ModelName] != sum(content) {
		return damaged, nil
	}
	return filepath.Base(above), nil
}

// listed are the hashes of files by the manifest of a version's directory.
func listed(dir string) (map[string]string, error) {
	text, err := os.ReadFile(filepath.Join(dir, "manifest.json"))
	if err != nil {
		return nil, err
	}
	var manifest struct {
		Files []struct{ Name, Hash string }
	}
	if err := json.Unmarshal(text, &manifest); err != nil {
		return nil, err
	}
	hashes := map[string]string{}
	for _, f := range manifest.Files {
		hashes[f.Name] = f.Hash
	}
	return hashes, nil
}

func sum(content []byte) string {
	s := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(s[:])
}

// noteHeld writes down what lies on a receiver's disk of a version that it is about to say it holds.
func (w *World) noteHeld(name string, version int64) {
	dir := filepath.Join(name, fmt.Sprintf("v%06d", version))
	names := []string{weights.ModelName}
	hashes, err := listed(dir)
	if err != nil {
		w.note(name, "note", fmt.Sprintf("holds %d manifest.json absent", version))
	}
	for _, file := range sorted(hashes) {
		if !slices.Contains(names, file) && !strings.HasPrefix(file, "optimizer") {
			names = append(names, file)
		}
	}
	for _, file := range names {
		content, err := os.ReadFile(filepath.Join(dir, file))
		said := sum(content)
		if err != nil {
			said = "absent"
		}
		w.note(name, "note", fmt.Sprintf("holds %d %s %s", version, file, said))
	}
}

// balancer stands for the address under which all planes are reached: it passes a request to the plane that answered
// last, and to the next one after that has failed or refused.
type balancer struct {
	w     *World
	host  string
	inner http.RoundTripper
	at    atomic.Int64
	// reported is called when a receiver is about to say that it has loaded a version.
	reported func(version int64)
}

func (b *balancer) RoundTrip(request *http.Request) (*http.Response, error) {
	urls := b.w.planeURLs()
	if "http://"+request.URL.Host != urls[0] {
		return b.inner.RoundTrip(request) // another receiver
	}
	body, err := bodyOf(request)
	if err != nil {
		return nil, err
	}
	b.report(body)
	at := b.at.Load()
	there := request.Clone(request.Context())
	there.Body = http.NoBody
	if body != nil {
		there.Body = io.NopCloser(bytes.NewReader(body))
	}
	there.URL.Host = strings.TrimPrefix(urls[int(at)%len(urls)], "http://")
	there.Host = there.URL.Host
	response, err := b.inner.RoundTrip(there)
	if err != nil && !errors.Is(err, context.Canceled) || err == nil && response.StatusCode >= 500 {
		b.at.CompareAndSwap(at, at+1)
	}
	return response, err
}

// report says what a receiver says that it holds, if its words say so.
func (b *balancer) report(body []byte) {
	var words struct {
		Done   int64  `json:"done"`
		Loaded int64  `json:"loaded"`
		Error  string `json:"error"`
	}
	if json.Unmarshal(body, &words) == nil && words.Done != 0 && words.Error == "" && words.Loaded >= 0 {
		b.reported(words.Loaded)
		b.w.mu.Lock()
		defer b.w.mu.Unlock()
		b.w.met(b.host, func(a *awaited) bool { return a.Asks == "receivers loaded" })
	}
}

// certify makes the certificates of receivers, which all of them trust.
func (w *World) certify() error {
	w.trusted, w.certificates = x509.NewCertPool(), map[string]tls.Certificate{}
	for i := range w.plan.Receivers {
		a := w.actors[fmt.Sprint("receiver", i)]
		public, private, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return err
		}
		form := &x509.Certificate{
			SerialNumber: big.NewInt(int64(i + 1)), IPAddresses: []net.IP{net.ParseIP(a.host.Load().IP)}, IsCA: true, BasicConstraintsValid: true,
			NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<32, 0), KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		}
		der, err := x509.CreateCertificate(rand.Reader, form, form, public, private)
		if err != nil {
			return err
		}
		leaf, err := x509.ParseCertificate(der)
		if err != nil {
			return err
		}
		w.trusted.AddCert(leaf)
		w.certificates[a.name] = tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private, Leaf: leaf}
	}
	return nil
}
