package api

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/headway-rl/headway/api/protocol"
)

// Every role may do what is its own and read, the admin all, an unknown token nothing.
func TestRoles(t *testing.T) {
	c := start(t, Options{Tokens: testTokens(t)}, func(s *Server) {
		s.route("POST /test/trainer", RoleTrainer, echo)
		s.route("POST /test/environment", RoleEnvironment, echo)
		s.route("POST /test/engine", RoleEngine|RoleTrainer, echo)
	})
	may := map[string]string{
		"trainer": "trainer engine status", "environment": "environment status", "engine": "engine status",
		"viewer": "status", "admin": "trainer environment engine status", "": "", "guess": "",
	}
	for role, allowed := range may {
		for _, path := range []string{"trainer", "environment", "engine", "status"} {
			var headers []string
			if role != "" {
				secret := secrets[role]
				if role == "guess" {
					secret = secrets["admin"][:10] + "0123456789"
				}
				headers = []string{"Authorization", "Bearer " + secret}
			}
			var a answer
			if path == "status" {
				a = c.do("GET", "/api/v1/status", "", headers...)
			} else {
				a = c.do("POST", "/test/"+path, `{"worker":"w"}`, headers...)
			}
			want := 403
			if strings.Contains(" "+allowed+" ", " "+path+" ") {
				want = 200
			} else if role == "" || role == "guess" {
				want = 401
			}
			if a.status != want {
				t.Errorf("%s at %s: %d, want %d: %s", role, path, a.status, want, a.body)
			}
			if want == 401 && (a.header.Get("WWW-Authenticate") != "Bearer" || a.code() != protocol.CodeUnauthorized) {
				t.Errorf("%s at %s: %v %s", role, path, a.header, a.body)
			}
		}
	}
	for _, header := range []string{"Basic " + secrets["admin"], secrets["admin"], "Bearer", "Bearer " + secrets["admin"] + " x"} {
		if a := c.do("GET", "/api/v1/status", "", "Authorization", header); a.status != 401 {
			t.Errorf("header %q: %d", header, a.status)
		}
	}
	if a := c.do("GET", "/healthz", ""); a.status != 200 {
		t.Errorf("a probe needs no token: %d", a.status)
	}
	// Two headers: which one counts would be a matter of taste.
	reply := c.raw("GET /api/v1/status HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + secrets["admin"] + "\r\nAuthorization: Bearer guess\r\nConnection: close\r\n\r\n")
	if !strings.HasPrefix(reply, "HTTP/1.1 401") {
		t.Errorf("two headers: %s", reply)
	}
}

// Nothing of a path is used that is not plainly a path.
func TestPathsDoNotClimb(t *testing.T) {
	reached := false
	c := start(t, Options{}, func(s *Server) {
		s.route("GET /test/files/{name}", roleAny, func(w http.ResponseWriter, r *http.Request) error {
			if name := r.PathValue("name"); strings.ContainsAny(name, "/\\\x00") || name == ".." {
				reached = true
			}
			return writeJSON(w, r.PathValue("name"))
		})
	})
	for _, path := range []string{
		"/test/files/../../etc/passwd", "/test/files/..", "/test/files/.", "/test/files/%2e%2e", "/test/files/%2e%2e%2fpasswd", "/test/files/..%2F..%2Fetc%2fpasswd",
		"/test/files/a%5cb", "/test/files/..\\x", "/test/files/%00", "/test/files/a%0d%0ab", "//test/files/a", "/test//files/a", "/./test/files/a", "/test/files/a%7f",
		"/api/v1/../../test/files/a", "/test/files/%c0%ae%c0%ae",
	} {
		reply := c.raw("GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
		if !strings.HasPrefix(reply, "HTTP/1.1 400 ") {
			t.Errorf("%s: %.80s", path, reply)
		}
	}
	for _, path := range []string{"/test/files/model-00001-of-00002.safetensors", "/test/files/..a", "/test/files/a%20b"} {
		if reply := c.raw("GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"); !strings.HasPrefix(reply, "HTTP/1.1 200 ") {
			t.Errorf("%s: %.80s", path, reply)
		}
	}
	if reached {
		t.Error("a climbing name reached a handler")
	}
}

// Without tokens a server answers to this machine's own names and to no foreign page.
func TestBrowsersOfForeignPages(t *testing.T) {
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	c := start(t, Options{Pages: map[string]http.Handler{"/": page}}, func(s *Server) { s.route("POST /test", roleAny, echo) })
	for host, want := range map[string]int{"localhost": 200, "localhost:7070": 200, "127.0.0.1": 200, "127.9.9.9:1": 200, "[::1]:7070": 200, "LOCALHOST": 200,
		"evil.example": 403, "127.0.0.1.evil.example": 403, "localhost.evil.example:7070": 403, "10.0.0.1": 403} {
		if a := c.do("GET", "/api/v1/status", "", "Host", host); a.status != want {
			t.Errorf("host %s: %d, want %d", host, a.status, want)
		}
	}
	foreign := []string{"Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"}
	if a := c.do("POST", "/test", `{"worker":"w"}`, foreign...); a.status != 403 || a.code() != protocol.CodeForbidden {
		t.Errorf("a foreign page's POST: %d %s", a.status, a.body)
	}
	for _, from := range [][]string{foreign, {"Origin", "null"}, {"Origin", "http://localhost:1"}, {"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}} {
		for _, path := range []string{"/api/v1/status", "/api/v1/stream", "/metrics", "/api/v1/view/info", "/api/v1/view/stream", "/api/v1/view/groups",
			"/api/v1/weights/latest", "/api/v1/weights/latest/files/model.safetensors", "/api/v1/transfer/1", "/v1/models", "/v1/models/m"} {
			for _, method := range []string{"GET", "HEAD"} {
				if path == "/api/v1/stream" && method == "GET" {
					continue // it would never end where it is not refused
				}
				if a := c.do(method, path, "", from...); a.status != 403 || a.header.Get("Access-Control-Allow-Origin") != "" {
					t.Errorf("%s %s with %q: %d %v %s", method, path, from, a.status, a.header, a.body)
				}
			}
		}
		if a := c.do("GET", "/", "", from...); a.status != 200 {
			t.Errorf("a link to the page, with %q: %d", from, a.status)
		}
	}
	for _, from := range [][]string{{"Sec-Fetch-Site", "same-origin"}, {"Sec-Fetch-Site", "none"}, {"Origin", "http://" + c.address}, nil} {
		if a := c.do("GET", "/api/v1/status", "", from...); a.status != 200 {
			t.Errorf("the page itself, with %q: %d %s", from, a.status, a.body)
		}
	}
	if a := c.do("GET", "/api/v1/status?token=0123456789abcdef", ""); a.status != 400 || strings.Contains(c.logs.String(), "0123456789abcdef") {
		t.Errorf("a token in the address: %d, log %s", a.status, c.logs)
	}
}

func TestPathsThatAreNotThere(t *testing.T) {
	c := start(t, Options{}, nil)
	if a := c.do("GET", "/api/v2/status", ""); a.status != 404 || a.code() != protocol.CodeNotFound || !strings.Contains(a.body, "/api/v1/status") {
		t.Errorf("%d %s", a.status, a.body)
	}
	for request, allowed := range map[string]string{
		"POST /api/v1/status": "GET, HEAD", "OPTIONS /api/v1/status": "GET, HEAD", "PUT /metrics": "GET, HEAD", "PUT /api/v1/view/queue": "GET, HEAD",
		"OPTIONS /api/v1/rollouts/claim": "POST", "GET /api/v1/rollouts/claim": "POST", "HEAD /api/v1/rollouts/claim": "POST",
	} {
		method, path, _ := strings.Cut(request, " ")
		a := c.do(method, path, "")
		if a.status != 405 || a.header.Get("Allow") != allowed || method != "HEAD" && a.code() != protocol.CodeMethod {
			t.Errorf("%s: %d %v %s", request, a.status, a.header, a.body)
		}
	}
}

// A defect in a handler is a 500 with a body; the server lives on.
func TestPanics(t *testing.T) {
	c := start(t, Options{}, func(s *Server) {
		s.route("POST /test/early", roleAny, func(http.ResponseWriter, *http.Request) error { panic("early") })
		s.route("POST /test/late", roleAny, func(w http.ResponseWriter, _ *http.Request) error {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "half")
			panic("late")
		})
		s.route("POST /test/broken", roleAny, func(w http.ResponseWriter, _ *http.Request) error {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "half")
			return fmt.Errorf("the disk is gone")
		})
	})
	if a := c.do("POST", "/test/early", "{}", "Idempotency-Key", "k"); a.status != 500 || a.code() != protocol.CodeInternal {
		t.Errorf("%d %s", a.status, a.body)
	}
	for _, path := range []string{"/test/late", "/test/broken"} {
		if a, err := c.try("POST", path, "{}"); err == nil {
			t.Errorf("%s: a reply that breaks off looks whole: %v", path, a)
		}
	}
	if a := c.do("GET", "/api/v1/status", ""); a.status != 200 {
		t.Errorf("after it: %d", a.status)
	}
	if text := c.logs.String(); !strings.Contains(text, "panic: early") || !strings.Contains(text, "guard_test.go") || !strings.Contains(text, "the disk is gone") {
		t.Errorf("the log lacks the place: %s", text)
	}
}

// A standby shows itself and refuses the rest until it is the writer.
func TestStandby(t *testing.T) {
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	c := start(t, Options{Pages: map[string]http.Handler{"/": page}}, func(s *Server) {
		s.route("POST /test", RoleTrainer, func(w http.ResponseWriter, _ *http.Request) error {
			if _, err := s.trainers(); err != nil {
				return err
			}
			return nil
		})
	})
	c.plane.setReady(errStandby)
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 503, "/metrics": 200, "/api/v1/status": 200, "/": 200} {
		if a := c.do("GET", path, ""); a.status != want {
			t.Errorf("%s: %d, want %d", path, a.status, want)
		}
	}
	a := c.do("POST", "/test", "{}")
	if a.status != 503 || a.header.Get("Retry-After") == "" || !strings.Contains(a.body, "another process is the writer") {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
	c.plane.setReady(nil)
	if a := c.do("POST", "/test", "{}"); a.status != 404 || !strings.Contains(a.body, "trainer.kind: remote") {
		t.Errorf("a port that the run has not: %d %s", a.status, a.body)
	}
	if err := c.server.Mount(Ports{}); err == nil {
		t.Error("a server without a plane")
	}
	if err := c.server.Mount(Ports{Plane: c.plane, Trainers: noTrainers{}}); err != nil {
		t.Fatal(err)
	}
	if a := c.do("POST", "/test", "{}"); a.status != 200 {
		t.Errorf("after Mount: %d %s", a.status, a.body)
	}
}

type noTrainers struct{ Trainers }

// A drain lets those go who wait for work, gives out none, and hears all others to their end.
func TestDrain(t *testing.T) {
	waiting, training, finish := make(chan struct{}), make(chan struct{}), make(chan struct{})
	c := start(t, Options{}, func(s *Server) {
		s.route("POST /test/lease", RoleTrainer, func(w http.ResponseWriter, r *http.Request) error {
			close(waiting)
			<-r.Context().Done()
			return r.Context().Err()
		}, takesWork)
		s.route("POST /test/ack", RoleTrainer, func(w http.ResponseWriter, r *http.Request) error {
			close(training)
			<-finish
			return writeJSON(w, 1)
		})
		s.route("POST /test/renew", RoleTrainer, echo)
	})
	leased, acked := make(chan answer, 1), make(chan answer, 1)
	go func() { leased <- c.do("POST", "/test/lease", "{}") }()
	go func() { acked <- c.do("POST", "/test/ack", "{}") }()
	<-waiting
	<-training
	c.server.Drain()
	if a := <-leased; a.status != 503 || a.header.Get("Retry-After") == "" || !strings.Contains(a.body, "draining") {
		t.Errorf("who waited: %d %s", a.status, a.body)
	}
	if a := c.do("POST", "/test/lease", "{}"); a.status != 503 {
		t.Errorf("who asks: %d", a.status)
	}
	if a := c.do("GET", "/readyz", ""); a.status != 503 {
		t.Errorf("readyz: %d", a.status)
	}
	if a := c.do("POST", "/test/renew", `{"worker":"w"}`); a.status != 200 {
		t.Errorf("a lease is still kept: %d %s", a.status, a.body)
	}
	c.plane.setReady(errStandby)
	if a := c.do("POST", "/test/renew", `{"worker":"w"}`); a.status != 503 {
		t.Errorf("another plane is the writer: %d %s", a.status, a.body)
	}
	c.plane.setReady(nil)
	if a := c.do("GET", "/api/v1/status", ""); !strings.Contains(a.body, `"state":"draining"`) {
		t.Errorf("status: %s", a.body)
	}
	c.stop()
	close(finish)
	if a := <-acked; a.status != 200 {
		t.Errorf("what ran ended with %d", a.status)
	}
	if err := <-c.ended; err != nil {
		t.Error(err)
	}
}

func TestRequestsOfARole(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	c := start(t, Options{Tokens: testTokens(t), RequestsMax: 2}, func(s *Server) {
		s.route("POST /test", RoleTrainer|RoleEnvironment, func(w http.ResponseWriter, r *http.Request) error {
			entered <- struct{}{}
			<-leave
			return nil
		})
	})
	done := make(chan int, 4)
	ask := func(role string) {
		done <- c.do("POST", "/test", "{}", "Authorization", "Bearer "+secrets[role]).status
	}
	go ask("trainer")
	go ask("trainer")
	<-entered
	<-entered
	a := c.do("POST", "/test", "{}", "Authorization", "Bearer "+secrets["trainer"])
	if a.status != 429 || a.code() != protocol.CodeBusy || a.header.Get("Retry-After") != "1" || !strings.Contains(a.body, `"bound":"requests"`) {
		t.Errorf("a third one: %d %s", a.status, a.body)
	}
	if b := c.bound("requests"); b != (protocol.Bound{Name: "requests", Held: 2, Max: 2, Binding: true, Refused: 1}) {
		t.Errorf("the bound: %+v", b)
	}
	for _, path := range []string{"/metrics", "/api/v1/status"} { // an operator sees why
		if a := c.do("GET", path, "", "Authorization", "Bearer "+secrets["trainer"]); a.status != 200 {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	go ask("environment") // has a bound of its own
	<-entered
	close(leave)
	for range 3 {
		if status := <-done; status != 200 {
			t.Errorf("got %d", status)
		}
	}
}

func TestListenOffLoopback(t *testing.T) {
	for address, fine := range map[string]bool{"127.0.0.1:7070": true, "[::1]:0": true, "localhost:1": true, "127.1.2.3:9": true,
		"0.0.0.0:7070": false, ":7070": false, "[::]:7070": false, "10.0.0.1:7070": false, "example.org:80": false, "7070": false} {
		if err := CheckListen(address, false); (err == nil) != fine {
			t.Errorf("%s without tokens: %v", address, err)
		}
		if err := CheckListen(address, true); err != nil {
			t.Errorf("%s with tokens: %v", address, err)
		}
	}
	s, err := New(Options{}, Ports{Plane: newPlane()})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Skip(err)
	}
	if err := s.Serve(context.Background(), listener); err == nil || !strings.Contains(err.Error(), "--token-file") {
		t.Errorf("served everybody: %v", err)
	}
}

// TLS is a real handshake with a certificate from files; without it nothing is heard.
func TestTLS(t *testing.T) {
	certificate, key, pool := selfSigned(t)
	config, err := LoadTLS(certificate, key, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := start(t, Options{Tokens: testTokens(t), TLS: config}, nil)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	defer transport.CloseIdleConnections()
	request, _ := http.NewRequest("GET", "https://"+c.address+"/api/v1/status", nil)
	request.Header.Set("Authorization", "Bearer "+secrets["viewer"])
	response, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != 200 || response.TLS == nil || response.TLS.Version < tls.VersionTLS12 || response.ProtoMajor != 1 {
		t.Errorf("%d over %+v", response.StatusCode, response.TLS)
	}
	if _, err := tls.Dial("tcp", c.address, &tls.Config{RootCAs: pool, MaxVersion: tls.VersionTLS11}); err == nil {
		t.Error("TLS 1.1 is accepted")
	}
	if a, err := c.try("GET", "/api/v1/status", ""); err == nil && a.status == 200 {
		t.Error("answers without TLS")
	}
	if _, err := LoadTLS(key, certificate, nil); err == nil || !strings.Contains(err.Error(), "PEM") {
		t.Errorf("the wrong way round: %v", err)
	}
	if err := os.Chmod(key, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadTLS(certificate, key, nil); runtime.GOOS != "windows" && (err == nil || !strings.Contains(err.Error(), "chmod 600")) {
		t.Errorf("a key that all may read: %v", err)
	}
}

func selfSigned(t *testing.T) (certificate, key string, pool *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	certificate, key = filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	certificatePEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for path, content := range map[string][]byte{certificate: certificatePEM, key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text})} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM(certificatePEM)
	return certificate, key, pool
}

// Whatever is asked and whatever goes wrong, no secret and no prompt is in what the server says.
func TestNothingSecretIsSaid(t *testing.T) {
	const prompt = "what-the-user-wrote"
	run := func(payloads bool) string {
		var said strings.Builder
		c := start(t, Options{Tokens: testTokens(t), LogPayloads: payloads}, func(s *Server) {
			s.route("POST /test", RoleEnvironment, echo)
			s.route("POST /test/panic", RoleEnvironment, func(_ http.ResponseWriter, r *http.Request) error {
				text, _ := io.ReadAll(r.Body)
				panic(fmt.Sprintf("%d bytes", len(text)))
			})
		})
		for _, secret := range append([]string{"an-unknown-secret-0123"}, secrets["environment"], secrets["viewer"]) {
			auth := []string{"Authorization", "Bearer " + secret}
			for _, body := range []string{`{"worker":"` + prompt + `"}`, `{"worker":` + prompt, `{"wrker":"` + prompt + `"}`, `{"worker":["` + prompt + `"]}`, `"` + prompt + `"`} {
				a := c.do("POST", "/test", body, append(auth, "Idempotency-Key", secret)...)
				if a.status != 200 {
					said.WriteString(a.body)
				}
			}
			said.WriteString(c.do("POST", "/test/panic", prompt, auth...).body)
			said.WriteString(c.do("GET", "/api/v1/status?x="+secret, "", auth...).body)
			said.WriteString(c.do("GET", "/metrics", "", auth...).body)
		}
		c.raw("GET /api HTTP/1.1\r\nHost: x\r\nAuthorization : Bearer " + secrets["admin"] + "\r\n\r\n")
		return said.String() + c.logs.String()
	}
	all := run(false)
	for _, secret := range secrets {
		if strings.Contains(all, secret) {
			t.Errorf("a token was said: %s", all)
		}
	}
	if strings.Contains(all, prompt) {
		t.Errorf("a prompt was said: %s", all)
	}
	if !strings.Contains(all, "POST \"/test\" 200") {
		t.Errorf("requests are not logged: %s", all)
	}
	if all := run(true); !strings.Contains(all, prompt) {
		t.Error("log_payloads has no effect")
	}
}
