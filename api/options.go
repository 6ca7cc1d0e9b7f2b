package api

import (
	"crypto/tls"
	"fmt"
	"math"
	"net/http"
	"os"
	"runtime"
	"time"

	"github.com/headway-rl/headway/internal/connections"
	"github.com/headway-rl/headway/internal/machine"
	"github.com/headway-rl/headway/internal/reread"
)

// Options give the addresses of a control plane and the limits of a client. The zero value serves
// loopback without tokens under the limits below.
type Options struct {
	// Tokens give each role its rights. Nil asks for no token, which Serve refuses off loopback.
	Tokens *Tokens
	// TLS, if not nil, has the certificate that every path is served under.
	TLS *tls.Config
	// Run is the run's name, which keys of its rollouts are bound to; it may be empty.
	Run string
	// Cell is the name of the cell that this process is, empty in a control plane.
	Cell string
	// URL is where workers and agents reach this process and no other that answers for its address; empty where that is where
	// they claim. Claims name it.
	URL string
	// Version is the program's, for the page and the metrics; empty is unknown.
	Version string
	// Pages are the files of the browser's pages by path, "/" among them; nil for none. They need no token, and
	// hold nothing of the run.
	Pages map[string]http.Handler
	// Directories are those below which a trainer may publish files that lie on a shared disk; none by default.
	Directories []string

	// HeaderBytesMax bounds a request's line and headers. Default 32 KiB.
	HeaderBytesMax int
	// BodyBytesMax bounds a request's body that holds tokens: those that sample and finish. Those
	// without tokens are bounded by 1 MiB, or this if it is less. Default 256 MiB.
	BodyBytesMax int64
	// BodiesBytesMax bounds the memory that the bodies of requests take at a time, weights apart and
	// decoded ones included. One role may have half of it. More are CodeBusy. Default an eighth of the memory.
	BodiesBytesMax int64
	// WeightsBytesMax bounds the body that publishes a version. Default 64 GiB.
	WeightsBytesMax int64
	// HeaderPatience is how long a client may take over its headers. Default 10 s.
	HeaderPatience time.Duration
	// BodyPatience is how long a client may hold up a body or a reply beyond what BytesPerSMin
	// allows; longer pauses end the connection. Default 30 s.
	BodyPatience time.Duration
	// BytesPerSMin is the slowest speed of a body or a reply. Default 16 KiB/s.
	BytesPerSMin int64
	// ConnectionsMax bounds open connections. An eighth is for those over which no request of a known client has
	// come: the oldest of them closes for a new one. The tokens of one role may have half of all. Requests that find no
	// place are CodeBusy.
	// Default as many as the process carries: see connections.Most.
	ConnectionsMax int
	// RequestsMax bounds the requests of one role under way at a time, those that wait for work
	// included; more are CodeBusy. Default half of the connections, at most half of those that the memory carries.
	RequestsMax int
	// RawIO writes short replies by system calls that Go's runtime is not told of: see internal/socket.
	RawIO bool
	// StreamsMax bounds the subscribers of the event stream and of the pages' stream together. The tokens of one role
	// may have half of it. Default 64.
	StreamsMax int
	// RepliesMax, ReplyBytesMax and ReplyAge bound the replies that are kept by Idempotency-Key:
	// their number, their bytes and their age. Defaults 4096, 64 MiB and 10 minutes.
	RepliesMax    int
	ReplyBytesMax int64
	ReplyAge      time.Duration
	// Drain is how long Serve lets running requests end after its context has. Default 30 s.
	Drain time.Duration
	// Heartbeat is the time between two comments on a silent event stream. Default 15 s.
	Heartbeat time.Duration

	// Clock reads the time that ages and durations are measured by. Default time.Now.
	Clock func() time.Time
	// Logf, if not nil, is told of defects and of what an operator ought to know. Several goroutines call it.
	Logf func(format string, args ...any)
	// Debugf, if not nil, gets a line for every request: never a token, and no body unless LogPayloads.
	Debugf func(format string, args ...any)
	// LogPayloads lets the beginning of JSON bodies, prompts and completions in them, into the debug log.
	LogPayloads bool
}

// withDefaults returns the options with everything unset filled in.
func (o Options) withDefaults() Options {
	orInt(&o.HeaderBytesMax, 32<<10)
	orInt(&o.BodyBytesMax, 256<<20)
	orInt(&o.BodiesBytesMax, machine.Memory()/8)
	orInt(&o.WeightsBytesMax, 64<<30)
	orInt(&o.HeaderPatience, 10*time.Second)
	orInt(&o.BodyPatience, 30*time.Second)
	orInt(&o.BytesPerSMin, 16<<10)
	orInt(&o.ConnectionsMax, connections.Most(machine.Descriptors(), machine.Memory()))
	orInt(&o.RequestsMax, connections.Most(2*o.ConnectionsMax, machine.Memory())/2)
	orInt(&o.StreamsMax, 64)
	orInt(&o.RepliesMax, 4096)
	orInt(&o.ReplyBytesMax, 64<<20)
	orInt(&o.ReplyAge, 10*time.Minute)
	orInt(&o.Drain, 30*time.Second)
	orInt(&o.Heartbeat, 15*time.Second)
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Logf == nil {
		o.Logf = func(string, ...any) {}
	}
	return o
}

func orInt[T ~int | ~int64](value *T, otherwise T) {
	if *value == 0 {
		*value = otherwise
	}
}

// validate reports a limit that cannot be meant.
func (o Options) validate() error {
	for _, limit := range []struct {
		name  string
		value int64
	}{
		{"HeaderBytesMax", int64(o.HeaderBytesMax)}, {"BodyBytesMax", o.BodyBytesMax}, {"BodiesBytesMax", o.BodiesBytesMax}, {"WeightsBytesMax", o.WeightsBytesMax},
		{"HeaderPatience", int64(o.HeaderPatience)}, {"BodyPatience", int64(o.BodyPatience)}, {"BytesPerSMin", o.BytesPerSMin},
		{"ConnectionsMax", int64(o.ConnectionsMax)}, {"RequestsMax", int64(o.RequestsMax)}, {"StreamsMax", int64(o.StreamsMax)},
		{"RepliesMax", int64(o.RepliesMax)}, {"ReplyBytesMax", o.ReplyBytesMax}, {"ReplyAge", int64(o.ReplyAge)},
		{"Drain", int64(o.Drain)}, {"Heartbeat", int64(o.Heartbeat)},
	} {
		if limit.value < 0 || limit.value == math.MaxInt64 {
			return fmt.Errorf("api: %s is %d: want a positive limit, or 0 for the default", limit.name, limit.value)
		}
	}
	return nil
}

// LoadTLS reads a certificate and its private key, both PEM, and reads them again when one of the files
// changes. Files that cannot be used then leave the certificate before, and logf is told. The key is
// refused if everybody on the machine may read or change it.
func LoadTLS(certificate, key string, logf func(format string, args ...any)) (*tls.Config, error) {
	read := func() (*tls.Certificate, error) { return readCertificate(certificate, key) }
	files, err := reread.New("the certificate "+certificate, read, logf, certificate, key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return files.Get(), nil }, MinVersion: tls.VersionTLS12}, nil
}

func readCertificate(certificate, key string) (*tls.Certificate, error) {
	if info, err := os.Stat(key); err == nil && runtime.GOOS != "windows" { // whose modes say nothing
		if mode := info.Mode().Perm(); mode&0o007 != 0 || mode&0o020 != 0 {
			return nil, fmt.Errorf("api: the private key %s has mode %04o, which lets others read or change it: chmod 600 %s", key, mode, key)
		}
	}
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("api: cannot serve TLS with %s and %s: %w: want a PEM certificate (with its chain) and its unencrypted private key", certificate, key, err)
	}
	return &pair, nil
}
